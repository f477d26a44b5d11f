#include "kernels/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace strait::kernels::parallel_test {
namespace {

TEST(ParallelFor, SharesTheWorkAmongThreads) {
  const int threads = at::get_num_threads();
  for (const int wanted : {1, 2}) {
    at::set_num_threads(wanted);
    for (const auto& [count, grain] : {std::pair<std::int64_t, std::int64_t>{1000, 7}, {2, 1}}) {
      std::mutex mutex;
      std::set<std::thread::id> used;
      std::vector<int> done(static_cast<std::size_t>(count));
      parallel_for(count, grain, [&](std::int64_t first, std::int64_t last) {
        EXPECT_EQ(first % grain, 0);
        const std::scoped_lock lock(mutex);
        used.insert(std::this_thread::get_id());
        for (std::int64_t i = first; i < last; ++i) ++done[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(used.size(), static_cast<std::size_t>(wanted));
      EXPECT_EQ(done, std::vector<int>(done.size(), 1));
    }
  }
  at::set_num_threads(threads);
}

TEST(ParallelFor, HandsOverWhatAPartThrows) {
  const auto refuse = [](std::int64_t, std::int64_t) { throw std::runtime_error("refused"); };
  EXPECT_THROW(parallel_for(8, 1, refuse), std::runtime_error);
}

TEST(ShareTasks, DoesEachOnceAndGivesThreadsTheNext) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const bool few : {false, true}) {
    std::vector<std::int64_t> costs(20, 3);
    if (few) costs[7] = 100;
    std::mutex mutex;
    std::set<std::thread::id> used;
    std::vector<std::size_t> order;
    share_tasks(costs, [&](std::size_t task) {
      const std::scoped_lock lock(mutex);
      used.insert(std::this_thread::get_id());
      order.push_back(task);
    });
    if (few) {
      EXPECT_EQ(order.front(), 7U) << "the dearest is not the first";
      EXPECT_EQ(used.size(), 1U)
          << "one task has most of the cost, and all threads should share it";
    }
    std::ranges::sort(order);
    for (std::size_t i = 0; i < costs.size(); ++i) EXPECT_EQ(order.at(i), i);
    EXPECT_EQ(order.size(), costs.size());
  }
  share_tasks({}, [](std::size_t) { FAIL() << "there is no task"; });
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace strait::kernels::parallel_test
