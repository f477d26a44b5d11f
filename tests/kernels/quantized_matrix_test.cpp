// Frozen matrices of few bits: NF4 against its definition, bounds of every format's error, and
// products that are those with the dequantised matrix.
#include "kernels/quantized_matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/linear.h"
#include "kernels/random.h"

namespace strait::kernels::quantized_matrix_test {
namespace {

constexpr std::array kFormats = {MatrixFormat::int8, MatrixFormat::int4, MatrixFormat::nf4};

// QLoRA's appendix: quantiles of a normal distribution on either side of zero, over the largest.
constexpr std::array kPublished = {-1.0,
                                   -0.6961928009986877,
                                   -0.5250730514526367,
                                   -0.39491748809814453,
                                   -0.28444138169288635,
                                   -0.18477343022823334,
                                   -0.09105003625154495,
                                   0.0,
                                   0.07958029955625534,
                                   0.16093020141124725,
                                   0.24611230194568634,
                                   0.33791524171829224,
                                   0.44070982933044434,
                                   0.5626170039176941,
                                   0.7229568362236023,
                                   1.0};

at::Tensor gaussian_matrix(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::empty(sizes, at::kFloat).normal_(0, 0.02, keyed_generator(seed, at::kCPU));
}

QuantizedMatrix quantized(const at::Tensor& values, MatrixFormat format) {
  const auto matrix = make_quantized_matrix({format, values.size(0), values.size(1)}, at::kCPU);
  EXPECT_TRUE(quantize_matrix(values, matrix));
  return matrix;
}

at::Tensor dequantized(const QuantizedMatrix& matrix, at::ScalarType type = at::kFloat) {
  at::Tensor values = at::empty({matrix.shape.rows, matrix.shape.columns}, type);
  dequantize_matrix(matrix, values);
  return values;
}

double relative_error(const at::Tensor& values, MatrixFormat format) {
  const at::Tensor error = dequantized(quantized(values, format)) - values;
  return (error.norm() / values.norm()).item<double>();
}

// One value at a time, in double, from the definition.
at::Tensor plain_nf4(const at::Tensor& values) {
  at::Tensor read = at::empty_like(values);
  const float* from = values.const_data_ptr<float>();
  float* to = read.mutable_data_ptr<float>();
  for (std::int64_t begin = 0; begin < values.numel(); begin += 64) {
    const std::int64_t end = std::min(begin + 64, values.numel());
    float size = 0;
    for (std::int64_t i = begin; i < end; ++i) size = std::max(size, std::abs(from[i]));
    for (std::int64_t i = begin; i < end; ++i) {
      const double share = size == 0 ? 0 : double{from[i] / size};
      std::size_t nearest = 0;
      for (std::size_t k = 1; k < kPublished.size(); ++k) {
        const bool closer = std::abs(share - kPublished[k]) < std::abs(share - kPublished[nearest]);
        if (closer) nearest = k;
      }
      to[i] = static_cast<float>(kPublished[nearest]) * size;
    }
  }
  return read;
}

class MatrixBits : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(MatrixBits, OfNf4AreThoseOfItsDefinition) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{7, 128}, {3, 96}, {5, 33}, {1, 1}}) {
    at::Tensor values = gaussian_matrix(sizes, 3);
    if (sizes[0] == 7) values.select(0, 2).zero_();
    if (sizes[0] == 3) values.select(0, 0).mul_(1e-42);  // subnormal
    const QuantizedMatrix matrix = quantized(values, MatrixFormat::nf4);
    const at::Tensor expected = plain_nf4(values);
    EXPECT_TRUE(at::equal(dequantized(matrix), expected)) << values.sizes();
    EXPECT_TRUE(at::equal(dequantized(matrix, at::kBFloat16), expected.to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(dequantized(matrix, at::kHalf), expected.to(at::kHalf)));
    // Of other types the values count, not the type.
    const at::Tensor narrow = values.to(at::kBFloat16);
    EXPECT_TRUE(at::equal(quantized(narrow, MatrixFormat::nf4).bytes,
                          quantized(narrow.to(at::kFloat), MatrixFormat::nf4).bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(OnEveryInstructionSet, MatrixBits,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& set) { return std::string(hwy::TargetName(set.param)); });

// What a GPU computes with.
TEST(QuantizedMatrix, OperatorsReadTheSameBits) {
  for (const MatrixFormat format : {MatrixFormat::int8, MatrixFormat::int4, MatrixFormat::nf4}) {
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{7, 128}, {9, 640}, {3, 96}, {5, 33}, {2, 70}, {1, 1}}) {
      at::Tensor values = gaussian_matrix(sizes, 5);
      values.select(0, 0).zero_();
      values.select(1, sizes[1] / 2).mul_(50);  // outliers: some groups are rotated
      const QuantizedMatrix matrix = quantized(values, format);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        at::Tensor read = at::empty(sizes, type);
        dequantize_by_operators(matrix, read);
        EXPECT_TRUE(at::equal(read, dequantized(matrix, type)))
            << name_of(format) << " " << values.sizes() << " " << type;
      }
    }
  }
}

TEST(QuantizedMatrix, PacksNf4AsOthersDo) {
  at::Tensor values = at::zeros({1, 4}, at::kFloat);
  values[0][0] = 2.0;    // 15
  values[0][1] = -2.0;   // 0
  values[0][3] = 0.326;  // 0.163 of the largest: 9
  const QuantizedMatrix matrix = quantized(values, MatrixFormat::nf4);
  const auto* bytes = matrix.bytes.const_data_ptr<std::uint8_t>();
  EXPECT_EQ(bytes[0], 0xF0);
  EXPECT_EQ(bytes[1], 0x79);
  EXPECT_EQ(matrix.bytes.slice(0, 4).view(at::kFloat).item<float>(), 2.0F);
}

TEST(QuantizedMatrix, TakesTheBytesThatItsShapeSays) {
  const auto bits = [](MatrixFormat format) {
    const QuantizedShape shape{format, 512, 1024};
    return 8.0 * static_cast<double>(bytes_of(shape)) / static_cast<double>(shape.values());
  };
  EXPECT_DOUBLE_EQ(bits(MatrixFormat::int8), 8 + 8 / 64.0 + 8 / 1024.0);
  EXPECT_DOUBLE_EQ(bits(MatrixFormat::int4), 4 + 9 / 64.0 + 8 / 1024.0);
  EXPECT_DOUBLE_EQ(bits(MatrixFormat::nf4), 4 + 32 / 64.0);
}

TEST(QuantizedMatrix, KeepsWithinTheErrorOfItsFormat) {
  const at::Tensor values = gaussian_matrix({256, 896}, 5);
  EXPECT_NEAR(relative_error(values, MatrixFormat::int8), 0.0062, 0.0002);
  EXPECT_NEAR(relative_error(values, MatrixFormat::int4), 0.0892, 0.001);
  EXPECT_NEAR(relative_error(values, MatrixFormat::nf4), 0.0920, 0.001);
  // NF4 never clips: no value is off by more than half the widest step, 0.304 of the largest.
  const at::Tensor blocks = values.view({-1, 64});
  const at::Tensor off =
      (dequantized(quantized(values, MatrixFormat::nf4)) - values).view({-1, 64});
  const at::Tensor share = off.abs() / blocks.abs().amax(1, /*keepdim=*/true);
  EXPECT_LE(share.max().item<double>(), 0.1520);
}

TEST(QuantizedMatrix, KeepsZerosAndItsOwnValues) {
  for (const MatrixFormat format : kFormats) {
    at::Tensor values = gaussian_matrix({4, 192}, 6);
    values.select(0, 1).zero_();
    const at::Tensor read = dequantized(quantized(values, format));
    EXPECT_TRUE(at::equal(read.select(0, 1), at::zeros({192}))) << name_of(format);
    if (format == MatrixFormat::nf4) {
      EXPECT_TRUE(at::equal(dequantized(quantized(read, format)), read));
    }
  }
}

TEST(QuantizedMatrix, RefusesWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const MatrixFormat format : kFormats) {
    for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
      at::Tensor values = gaussian_matrix({130, 700}, 6);
      values[129][699] = wrong;
      const auto matrix = make_quantized_matrix({format, 130, 700}, at::kCPU);
      EXPECT_FALSE(quantize_matrix(values, matrix)) << name_of(format) << wrong;
    }
  }
}

TEST(QuantizedMatrix, DoesNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  const at::Tensor values = gaussian_matrix({301, 999}, 7);
  for (const MatrixFormat format : kFormats) {
    at::set_num_threads(1);
    const QuantizedMatrix alone = quantized(values, format);
    const at::Tensor read = dequantized(alone);
    at::set_num_threads(3);
    const QuantizedMatrix together = quantized(values, format);
    EXPECT_TRUE(at::equal(alone.bytes, together.bytes)) << name_of(format);
    EXPECT_TRUE(at::equal(read, dequantized(together))) << name_of(format);
  }
  at::set_num_threads(threads);
}

// The product, then the gradients of all leaves.
std::vector<at::Tensor> passed(const Weight& weight, at::ScalarType type, bool input_first,
                               bool adapted) {
  const at::Tensor input = gaussian_matrix({5, 96}, 1).mul(50).to(type).requires_grad_();
  const at::Tensor bias = gaussian_matrix({1, 160}, 2).to(type).view({160});
  LowRank low{gaussian_matrix({3, 96}, 3).to(type).requires_grad_(),
              gaussian_matrix({160, 3}, 4).to(type).requires_grad_(), 2, input};
  const at::Tensor product = adapted ? adapted_linear(input, weight, bias, input_first, low)
                                     : linear(input, weight, bias, input_first);
  torch::autograd::backward({product}, {gaussian_matrix({5, 160}, 5).to(type)});
  std::vector<at::Tensor> all{product, input.grad()};
  if (adapted) all.insert(all.end(), {low.down.grad(), low.up.grad()});
  return all;
}

TEST(QuantizedMatrix, MultipliesAsItsDequantisedValuesDo) {
  for (const MatrixFormat format : kFormats) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const int variant : {0, 1, 2, 3}) {
        const bool input_first = variant % 2 == 1;
        const auto values = gaussian_matrix({input_first ? 96 : 160, input_first ? 160 : 96}, 9);
        const QuantizedMatrix matrix = quantized(values, format);
        const auto expected = passed(dequantized(matrix, type), type, input_first, variant >= 2);
        // Another matrix takes the memory between forward and backward of the next ones.
        const auto got = passed({matrix.bytes, matrix.shape}, type, input_first, variant >= 2);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(at::equal(got[i], expected[i])) << name_of(format) << variant << " " << i;
        }
      }
    }
  }
}

TEST(QuantizedMatrix, IsDequantisedAgainForTheBackward) {
  const QuantizedMatrix first = quantized(gaussian_matrix({48, 64}, 1), MatrixFormat::nf4);
  const QuantizedMatrix second = quantized(gaussian_matrix({40, 48}, 2), MatrixFormat::nf4);
  const at::Tensor input = gaussian_matrix({3, 64}, 3).requires_grad_();
  const auto through = [&](const Weight& lower, const Weight& upper) {
    torch::autograd::backward({linear(linear(input, lower, {}, false), upper, {}, false).sum()});
    const at::Tensor gradient = input.grad().clone();
    input.mutable_grad() = at::Tensor();
    return gradient;
  };
  EXPECT_TRUE(at::equal(through({first.bytes, first.shape}, {second.bytes, second.shape}),
                        through(dequantized(first), dequantized(second))));
}

}  // namespace
}  // namespace strait::kernels::quantized_matrix_test
