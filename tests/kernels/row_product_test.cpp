#include "kernels/row_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <random>

#include "kernels/random.h"

namespace strait::kernels::row_product_test {
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

// Of any sizes: the product, and for some of its rows the bits that they have among all.
void expect_both_laws(std::mt19937& random) {
  const auto below = [&](std::int64_t most) { return static_cast<std::int64_t>(random()) % most; };
  const std::int64_t rows = 1 + below(110);
  const std::int64_t width = 1 + below(300);
  const std::int64_t outputs = 1 + below(500);
  const bool input_first = below(2) == 1;
  SCOPED_TRACE(testing::Message() << rows << " rows, " << width << " to " << outputs
                                  << ", input first " << input_first);
  const at::Tensor stored = drawn({outputs, width}, random());
  const at::Tensor matrix = input_first ? stored.t().contiguous() : stored;
  const at::Tensor bias = below(2) == 1 ? drawn({outputs}, random()) : at::Tensor();
  const at::Tensor input = drawn({rows, width}, random());
  const at::Tensor all = row_product(input, matrix, bias, input_first);
  at::Tensor wanted = at::mm(input.to(at::kDouble), stored.t().to(at::kDouble));
  if (bias.defined()) wanted.add_(bias);
  const double most = 1e-6 * static_cast<double>(width + 4);
  EXPECT_LT((all - wanted).abs().max().item<double>(), most);
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t count = std::min(1 + below(15), rows - row);
    const at::Tensor some = row_product(input.narrow(0, row, count), matrix, bias, input_first);
    EXPECT_TRUE(at::equal(some, all.narrow(0, row, count))) << count << " from " << row;
    row += count;
  }
}

TEST(RowProduct, KeepsBothLawsOnEveryInstructionSet) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    std::mt19937 random(5);
    for (int i = 0; i < 30; ++i) expect_both_laws(random);
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace strait::kernels::row_product_test
