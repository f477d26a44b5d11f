#include "launcher/transfer/fetch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "launcher/transfer/serve_queue.h"

namespace strait::transfer {
namespace {

using Time = FetchPlan::Time;
constexpr Time kStart{std::chrono::seconds(1000)};
constexpr std::chrono::milliseconds kTick{10};

const std::vector<ChunkRun> kAll = {{0, 4}};

TEST(FetchPlan, RequestsRarestChunkFirst) {
  FetchPlan plan(ChunkSet::all(4), 1);
  plan.add_chunks(0, kAll);
  plan.add_chunks(1, std::vector<ChunkRun>{{0, 3}});
  const std::vector<SourceWindow> windows(2);
  const auto first = plan.next(0, windows, kStart);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->chunk, 3U);
  EXPECT_FALSE(first->force);
}

TEST(FetchPlan, RequestsChunkFromOneSourceAtATime) {
  FetchPlan plan(ChunkSet::all(1), 1);
  plan.add_chunks(0, std::vector<ChunkRun>{{0, 1}});
  plan.add_chunks(1, std::vector<ChunkRun>{{0, 1}});
  const std::vector<SourceWindow> windows(2);
  plan.requested(0, plan.next(0, windows, kStart)->chunk);
  EXPECT_FALSE(plan.next(1, windows, kStart).has_value());
  EXPECT_FALSE(plan.received(1, 0));
  plan.remove_source(0);
  EXPECT_TRUE(plan.next(1, windows, kStart).has_value());
}

// If all sources deferred to each other, the fetch would hang.
TEST(FetchPlan, AlwaysRequestsFromSomeSource) {
  std::mt19937_64 numbers(11);
  std::uniform_real_distribution<double> magnitude(-3, 1);
  for (int round = 0; round < 5000; ++round) {
    const std::size_t count = 2 + numbers() % 4;
    FetchPlan plan(ChunkSet::all(1), numbers());
    std::vector<SourceWindow> windows(count);
    for (std::size_t i = 0; i < count; ++i) {
      plan.add_chunks(i, std::vector<ChunkRun>{{0, 1}});
      if (numbers() % 2 == 0) plan.spare(i);
      windows[i].set_round_trip(SourceWindow::Seconds(std::pow(10, magnitude(numbers))));
    }
    bool requested = false;
    for (std::size_t i = 0; i < count; ++i) requested |= plan.next(i, windows, kStart).has_value();
    ASSERT_TRUE(requested) << "seed 11, round " << round;
  }
}

TEST(FetchPlan, ForcesRequestAfterRedirectTimeout) {
  FetchPlan plan(ChunkSet::all(1), 1);
  plan.add_chunks(0, std::vector<ChunkRun>{{0, 1}});
  plan.add_chunks(1, {});
  const std::vector<SourceWindow> windows(2);
  plan.requested(0, 0);
  EXPECT_TRUE(plan.redirected(0, 0, 1, kStart));
  EXPECT_FALSE(plan.next(0, windows, kStart).has_value());
  const auto later = plan.next(0, windows, kStart + FetchPlan::kRedirectTimeout);
  ASSERT_TRUE(later.has_value());
  EXPECT_TRUE(later->force);
  plan.remove_source(1);
  EXPECT_TRUE(plan.next(0, windows, kStart).has_value());
}

TEST(FetchPlan, SparesSharedUplinkUnlessMuchNearer) {
  FetchPlan plan(ChunkSet::all(1), 1);
  plan.spare(0);
  plan.add_chunks(0, std::vector<ChunkRun>{{0, 1}});
  plan.add_chunks(1, std::vector<ChunkRun>{{0, 1}});
  std::vector<SourceWindow> windows(2);
  EXPECT_FALSE(plan.next(0, windows, kStart).has_value());
  EXPECT_TRUE(plan.next(1, windows, kStart).has_value());
  windows[1].set_round_trip(SourceWindow::Seconds(2));
  EXPECT_TRUE(plan.next(0, windows, kStart).has_value());
  EXPECT_FALSE(plan.next(1, windows, kStart).has_value());
}

TEST(FetchPlan, RefusesRunsOutOfRange) {
  FetchPlan plan(ChunkSet::all(4), 1);
  EXPECT_FALSE(plan.add_chunks(0, std::vector<ChunkRun>{{3, 2}}));
}

TEST(SourceWindow, WindowMatchesPathCapacity) {
  SourceWindow window;
  window.set_round_trip(SourceWindow::Seconds(0.4));
  Time now = kStart;
  const auto run = [&](double bytes_per_second) {
    for (int i = 0; i < 200; ++i) {
      while (window.room() > 0) window.requested(now);
      // A full path delivers at its rate; a window that is too small is slower.
      const double rate = std::min(bytes_per_second, window.outstanding() * 1048576 / 0.4);
      now += std::chrono::duration_cast<Time::duration>(SourceWindow::Seconds(1048576 / rate));
      window.received(now, 1048576);
    }
    while (window.room() > 0) window.requested(now);
    return window.outstanding();
  };
  const int narrow = run(1e6);
  EXPECT_EQ(narrow, SourceWindow::kLeast);
  const int wide = run(20e6);
  EXPECT_GE(wide, 20e6 * 0.4 / 1048576);
  EXPECT_LE(wide, SourceWindow::kMost);
}

// A simulation in ticks of receivers and one source with paths of equal speed: every chunk takes
// one tick. The source's uplink carries each chunk once, for every seed.
struct Swarm {
  struct Receiver {
    std::unique_ptr<FetchPlan> plan;
    std::vector<SourceWindow> windows;
    ServeQueue queue;
    ChunkSet here;
  };

  Swarm(std::size_t count, std::uint32_t chunk_count, std::uint64_t seed) : chunks(chunk_count) {
    for (std::size_t i = 0; i < count; ++i) {
      receivers.push_back({std::make_unique<FetchPlan>(ChunkSet::all(chunks), seed + i),
                           std::vector<SourceWindow>(count + 1),
                           {},
                           ChunkSet(chunks)});
      FetchPlan& plan = *receivers.back().plan;
      plan.spare(count);
      plan.add_chunks(count, std::vector<ChunkRun>{{0, chunks}});
      for (std::size_t other = 0; other < count; ++other) {
        if (other != i) plan.add_chunks(other, {});
      }
    }
  }

  ServeQueue& queue_of(std::size_t source) {
    return source == receivers.size() ? source_queue : receivers[source].queue;
  }

  void ask(Time now) {
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      Receiver& receiver = receivers[i];
      for (std::size_t source = 0; source <= receivers.size(); ++source) {
        while (receiver.windows[source].room() > 0) {
          const auto choice = receiver.plan->next(source, receiver.windows, now);
          if (!choice) break;
          receiver.plan->requested(source, choice->chunk);
          receiver.windows[source].requested(now);
          const ServeQueue::Request request{i, "x", choice->chunk, choice->force};
          if (const auto other = queue_of(source).sent_to_another(request)) {
            receiver.plan->redirected(source, choice->chunk, *other, now);
            receiver.windows[source].declined();
          } else {
            queue_of(source).push(request);
          }
        }
      }
    }
  }

  void serve(Time now) {
    for (std::size_t source = 0; source <= receivers.size(); ++source) {
      const auto request = queue_of(source).next();
      if (!request) continue;
      Receiver& receiver = receivers[request->peer];
      EXPECT_TRUE(receiver.plan->received(source, request->chunk));
      EXPECT_FALSE(receiver.here.contains(request->chunk));
      receiver.here.insert(request->chunk);
      receiver.windows[source].received(now, ChunkTable::kChunkBytes);
      if (source == receivers.size()) ++sent_by_source;
      for (std::size_t other = 0; other < receivers.size(); ++other) {
        if (other == request->peer) continue;
        receivers[other].plan->add_chunks(request->peer,
                                          std::vector<ChunkRun>{{request->chunk, 1}});
      }
    }
  }

  bool done() const {
    return std::all_of(receivers.begin(), receivers.end(),
                       [](const Receiver& receiver) { return receiver.plan->done(); });
  }

  std::uint32_t chunks;
  std::vector<Receiver> receivers;
  ServeQueue source_queue;
  std::uint32_t sent_by_source = 0;
};

TEST(FetchPlan, SourceSendsEachChunkOnceAndSwarmFinishesSoon) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Swarm swarm(2 + seed % 5, static_cast<std::uint32_t>(20 + seed * 7), seed);
    Time now = kStart;
    std::uint32_t ticks = 0;
    for (; !swarm.done() && ticks < 10'000; ++ticks) {
      now += kTick;
      swarm.ask(now);
      swarm.serve(now);
    }
    ASSERT_TRUE(swarm.done()) << "seed " << seed;
    EXPECT_EQ(swarm.sent_by_source, swarm.chunks) << "seed " << seed;
    // One source alone would need one tick for each chunk and receiver.
    EXPECT_LT(ticks, swarm.chunks * 3 / 2 + 10) << "seed " << seed;
  }
}

}  // namespace
}  // namespace strait::transfer
