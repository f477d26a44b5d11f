#include "kernels/row_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kernels/random.h"

namespace strait::kernels {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t key) {
  at::Generator generator = keyed_generator(key, at::kCPU);
  return at::empty(sizes, at::kFloat).normal_(0, 1, generator);
}

TEST(RowProduct, IsTheProduct) {
  for (const bool input_first : {false, true}) {
    for (const auto& [width, outputs] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 5}, {33, 97}, {300, 130}, {65, 1100}}) {
      SCOPED_TRACE(testing::Message()
                   << width << " to " << outputs << ", input first " << input_first);
      const at::Tensor stored = drawn({outputs, width}, 1);
      const at::Tensor matrix = input_first ? stored.t().contiguous() : stored;
      for (const at::Tensor& bias : {at::Tensor(), drawn({outputs}, 2)}) {
        const at::Tensor input = drawn({19, width}, 3);
        at::Tensor wanted = at::mm(input.to(at::kDouble), stored.t().to(at::kDouble));
        if (bias.defined()) wanted.add_(bias);
        const at::Tensor got = row_product(input, matrix, bias, input_first);
        const double most = 1e-6 * static_cast<double>(width + 4);
        EXPECT_LT((got - wanted).abs().max().item<double>(), most);
      }
    }
  }
}

TEST(RowProduct, GivesARowTheSameBitsWithAnyOthersAndThreads) {
  const int threads = at::get_num_threads();
  for (const bool input_first : {false, true}) {
    for (const auto& [width, outputs] :
         {std::pair<std::int64_t, std::int64_t>{30, 44}, {1000, 2085}, {6001, 70}}) {
      SCOPED_TRACE(testing::Message()
                   << width << " to " << outputs << ", input first " << input_first);
      const at::Tensor matrix =
          input_first ? drawn({width, outputs}, 1) : drawn({outputs, width}, 1);
      const at::Tensor bias = drawn({outputs}, 2);
      const at::Tensor input = drawn({75, width}, 3);
      at::set_num_threads(1);
      std::vector<at::Tensor> alone;
      for (const at::Tensor& row : input.split(1)) {
        alone.push_back(row_product(row, matrix, bias, input_first));
      }
      const at::Tensor all = at::cat(alone);
      at::set_num_threads(2);
      for (const std::int64_t begin : {0, 1, 2, 3, 5, 12, 33, 60, 74}) {
        for (const std::int64_t end : {begin + 1, begin + 2, begin + 9, std::int64_t{75}}) {
          if (end > 75) continue;
          const at::Tensor some = input.narrow(0, begin, end - begin);
          EXPECT_TRUE(at::equal(row_product(some, matrix, bias, input_first),
                                all.narrow(0, begin, end - begin)))
              << "rows " << begin << " to " << end;
        }
      }
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace strait::kernels
