// How far values are off after quantising: bounds that always hold, means, and the table of
// kernels/QUANTIZED.md.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/row_quantization.h"

namespace strait::kernels::quantize_error_test {
namespace {

constexpr std::uint32_t kSeed = 7;
using Floats = std::vector<float>;

std::vector<std::byte> quantized(const Floats& values, std::int64_t width,
                                 const GroupFormat& format, const Draw& draw,
                                 SquareSums* sums = nullptr) {
  const auto tokens = static_cast<std::int64_t>(values.size()) / width;
  std::vector<std::byte> bytes(static_cast<std::size_t>(tokens * token_bytes(format, width)));
  quantize({values.data(), Element::float32, tokens, width}, format, draw, bytes.data(), sums);
  return bytes;
}

Floats there_and_back(const Floats& values, std::int64_t width, const GroupFormat& format,
                      const Draw& draw) {
  const std::vector<std::byte> bytes = quantized(values, width, format, draw);
  Floats read(values.size());
  const auto tokens = static_cast<std::int64_t>(values.size()) / width;
  dequantize(bytes.data(), format, {read.data(), Element::float32, tokens, width});
  return read;
}

Floats gaussian(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

float largest_of(const float* values, std::size_t count) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

double relative_error(const Floats& values, const GroupFormat& format, Rounding rounding) {
  SquareSums sums;
  quantized(values, 1024, format, {rounding, 99}, &sums);
  EXPECT_EQ(sums.value, sums.change);
  return std::sqrt(sums.error / sums.value);
}

// The scale is rounded up to one of eight per power of two, so it is 1/8 too large at most.
TEST(QuantizeError, OfAValueIsAtMostHalfAStepFrom5BitsOn) {
  std::mt19937 random(kSeed);
  for (const int group : {32, 64, 128}) {
    const auto size = static_cast<std::size_t>(group);
    for (int bits = 5; bits <= 8; ++bits) {
      const Floats values = gaussian(64 * size, random);
      const Floats read = there_and_back(values, group, {bits, group, false}, {});
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float largest = largest_of(values.data() + i / size * size, size);
        const float step = 1.125F * largest / static_cast<float>((1 << bits) - 1);
        ASSERT_LE(std::fabs(values[i] - read[i]), 1.0001F * step)
            << bits << " bits, seed " << kSeed;
      }
    }
  }
}

// Fewer bits clip: what is cut off is the most that a value can lose.
TEST(QuantizeError, OfAValueBelow5BitsIsAtMostHalfAStepOrWhatIsClipped) {
  std::mt19937 random(kSeed);
  for (int bits = 3; bits <= 4; ++bits) {
    const float clip = bits == 3 ? 0.75F : 0.9F;
    const Floats values = gaussian(64 * 64, random);
    const Floats read = there_and_back(values, 64, {bits, 64, false}, {});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float largest = largest_of(values.data() + i / 64 * 64, 64);
      const float step = 1.125F * clip * largest / static_cast<float>((1 << bits) - 1);
      const float bound = std::max(step, (1 - clip) * largest);
      ASSERT_LE(std::fabs(values[i] - read[i]), 1.0001F * bound) << bits << " bits, seed " << kSeed;
    }
  }
}

TEST(QuantizeError, OfNearestRoundingHasNoMeanOnSymmetricData) {
  std::mt19937 random(kSeed);
  const Floats values = gaussian(1 << 18, random);
  for (int bits = 2; bits <= 8; ++bits) {
    const Floats read = there_and_back(values, 1024, {bits, 64, false}, {});
    double total = 0;
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = double{read[i]} - values[i];
      total += error;
      squares += error * error;
    }
    EXPECT_LE(std::fabs(total), 5 * std::sqrt(squares)) << bits << " bits, seed " << kSeed;
  }
}

Floats drawn_from(const std::string& name, std::size_t count, std::mt19937& random) {
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> heavy(3);
  Floats values = gaussian(count, random);
  for (float& value : values) {
    if (name == "laplace") value = std::copysign(exponential(random), value);
    if (name == "student") value = heavy(random);
  }
  return values;
}

// So what was not sent of a change is less than the change, and goes to zero over visits. The worst
// are groups in which one value stands for all.
TEST(QuantizeError, OfAGroupAt2BitsIsLessThanTheGroup) {
  std::mt19937 random(kSeed);
  for (const int group : {32, 64, 128}) {
    const auto size = static_cast<std::size_t>(group);
    const double bound = group == 128 ? 1.05 : 1;
    for (const std::string name : {"gauss", "laplace", "student", "spikes", "equal"}) {
      for (int trial = 0; trial < 500; ++trial) {
        Floats values = drawn_from(name, size, random);
        const std::size_t spikes = name == "spikes" ? 1 + random() % 4 : 0;
        for (std::size_t i = spikes; spikes > 0 && i < size; ++i) values[i] = 0;
        if (name == "equal") values.assign(size, values[0]);
        SquareSums sums;
        quantized(values, group, {2, group, trial % 2 == 1}, {}, &sums);
        ASSERT_LT(sums.error, bound * sums.value) << name << ", " << group << ", seed " << kSeed;
      }
    }
  }
}

// What a real boundary sends upstream: the gradient of a mean cross-entropy at the hidden states
// below a block of a random transformer (causal attention, MLP, tied LM head).
Floats gradients(std::int64_t tokens, std::int64_t width) {
  at::manual_seed(kSeed);
  constexpr std::int64_t kWords = 257;
  constexpr std::int64_t kRow = 128;
  constexpr std::int64_t kHeads = 8;
  const auto layer = [&](const at::Tensor& input, std::int64_t outputs) {
    return at::matmul(input, at::randn({input.size(-1), outputs}) / std::sqrt(input.size(-1)));
  };
  const auto norm = [&](const at::Tensor& input) { return at::layer_norm(input, {width}); };
  const at::Tensor table = at::randn({kWords, width}) * 0.1;
  const at::Tensor words = at::randint(kWords, {tokens}).square().fmod(kWords).to(at::kLong);
  at::Tensor hidden = at::embedding(table, words).view({tokens / kRow, kRow, width}) +
                      0.1 * at::randn({kRow, width});
  hidden.requires_grad_(true);
  const auto heads = layer(norm(hidden), 3 * width)
                         .view({tokens / kRow, kRow, 3, kHeads, width / kHeads})
                         .permute({2, 0, 3, 1, 4});
  const at::Tensor attended = at::scaled_dot_product_attention(heads[0], heads[1], heads[2],
                                                               std::nullopt, 0, /*is_causal=*/true);
  at::Tensor above = hidden + layer(attended.transpose(1, 2).flatten(2), width);
  above = above + layer(at::gelu(layer(norm(above), width)), width);
  const at::Tensor logits = at::matmul(norm(above), table.t()).view({tokens, kWords});
  at::cross_entropy_loss(logits, words.roll(-1)).backward();
  const at::Tensor result = hidden.grad().contiguous();
  const auto* const data = result.const_data_ptr<float>();
  return {data, data + result.numel()};
}

// The mean over groups of <decoded, value> / <value, value>.
double mean_length(const Floats& values, const GroupFormat& format, Rounding rounding) {
  const auto group = static_cast<std::size_t>(format.group);
  const Floats read = there_and_back(values, 1024, format, {rounding, 5});
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += group) {
    double product = 0;
    double square = 0;
    for (std::size_t i = begin; i < begin + group; ++i) {
      product += double{read[i]} * values[i];
      square += double{values[i]} * values[i];
    }
    sum += product / square;
  }
  return sum / static_cast<double>(values.size() / group);
}

// What is sent once must not be shorter than it is: the stages below would learn too little.
TEST(QuantizeError, UnbiasedRoundingKeepsTheLengthOfGroups) {
  std::mt19937 random(kSeed);
  for (const std::string name : {"gauss", "laplace", "student", "gradients"}) {
    const Floats values =
        name == "gradients" ? gradients(1024, 1024) : drawn_from(name, 1 << 20, random);
    for (const int group : {32, 64, 128}) {
      for (int bits = 2; bits <= 8; ++bits) {
        for (const bool rotate : {false, true}) {
          const GroupFormat format{bits, group, rotate};
          EXPECT_NEAR(mean_length(values, format, Rounding::unbiased), 1, 0.002)
              << name << ", " << bits << " bits, groups of " << group << (rotate ? ", rotated" : "")
              << ", seed " << kSeed;
        }
      }
      // Clipped and not restored, a group is up to 15 % too short.
      EXPECT_LT(mean_length(values, {2, group, false}, Rounding::nearest), 0.97) << name;
      EXPECT_LT(mean_length(values, {4, group, false}, Rounding::nearest), 0.998) << name;
    }
  }
}

// A group whose largest value is far above the others: they lie between the two levels that are
// nearest to zero. Whichever is nearer would make them larger, and every zero positive.
TEST(QuantizeError, UnbiasedRoundingKeepsSmallValuesOnAverage) {
  constexpr int kKeys = 4000;
  std::mt19937 random(kSeed);
  for (int bits = 4; bits <= 5; ++bits) {
    Floats values = gaussian(64, random);
    for (float& value : values) value *= 0.2F / static_cast<float>(1 << bits);
    std::fill_n(values.begin(), 8, 0.0F);
    values[20] = 1;
    std::vector<double> sums(64);
    std::vector<double> squares(64);
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const Floats read = there_and_back(values, 64, {bits, 64, false}, {Rounding::unbiased, key});
      for (std::size_t i = 0; i < 64; ++i) {
        sums[i] += read[i];
        squares[i] += double{read[i]} * read[i];
      }
    }
    for (std::size_t i = 0; i < 64; ++i) {
      if (i == 20) continue;
      // The scale that restores the length depends a little on what was drawn.
      const double margin = 5 * std::sqrt(squares[i]) / kKeys + 0.1 * std::fabs(values[i]);
      EXPECT_NEAR(sums[i] / kKeys, values[i], margin)
          << bits << " bits, value " << i << ", seed " << kSeed;
    }
  }
}

// The table of kernels/QUANTIZED.md, in its last column.
TEST(QuantizeError, OfUnbiasedRoundingIsWhatTheTableSays) {
  std::mt19937 random(kSeed);
  const Floats values = gaussian(1 << 20, random);
  constexpr std::array<double, 4> kErrors{0.368, 0.195, 0.116, 0.056};
  for (int bits = 2; bits <= 5; ++bits) {
    EXPECT_NEAR(relative_error(values, {bits, 64, false}, Rounding::unbiased),
                kErrors[static_cast<std::size_t>(bits - 2)], 0.001)
        << bits << " bits";
  }
}

struct Expected {
  int bits;
  std::array<double, 3> nearest;  // groups of 32, 64, 128
};

// The table of kernels/QUANTIZED.md.
constexpr std::array<Expected, 7> kTable{{
    {2, {0.3395, 0.3430, 0.3457}},
    {3, {0.1832, 0.1878, 0.1956}},
    {4, {0.0895, 0.0970, 0.1045}},
    {5, {0.0467, 0.0512, 0.0556}},
    {6, {0.0230, 0.0252, 0.0274}},
    {7, {0.0114, 0.0125, 0.0136}},
    {8, {0.0057, 0.0062, 0.0068}},
}};

TEST(QuantizeError, OnGaussianValuesIsWhatTheTableSays) {
  std::mt19937 random(kSeed);
  const Floats values = gaussian(1 << 20, random);
  for (const Expected& row : kTable) {
    for (std::size_t k = 0; k < 3; ++k) {
      const GroupFormat format{row.bits, 32 << k, false};
      const double nearest = relative_error(values, format, Rounding::nearest);
      EXPECT_NEAR(nearest, row.nearest[k], 0.02 * row.nearest[k])
          << row.bits << ", " << format.group;
    }
  }
}

TEST(QuantizeError, OfGroupsWithOutliersShrinksByRotation) {
  std::mt19937 random(kSeed);
  Floats values = gaussian(1 << 18, random);
  for (std::size_t i = 17; i < values.size(); i += 256) values[i] = 40;
  for (const int group : {32, 64, 128}) {
    const double plain = relative_error(values, {4, group, false}, Rounding::nearest);
    const double rotated = relative_error(values, {4, group, true}, Rounding::nearest);
    EXPECT_LT(rotated, 0.75 * plain) << group;
  }
}

TEST(QuantizeError, IsNoneForAGroupOfZeros) {
  Floats values(130, 0.0F);
  values[129] = 1;
  const Floats read = there_and_back(values, 130, {4, 64, true}, {});
  EXPECT_TRUE(
      std::all_of(read.begin(), read.begin() + 128, [](float value) { return value == 0; }));
  EXPECT_EQ(std::fabs(read[128]) * 15, read[129]);  // among others, zero takes a lowest level
}

// Also where it is not the only group of its token.
TEST(QuantizeError, LeavesRefusedGroupNaNAndAdjacentGroupsIntact) {
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity(), -kHuge, -2 * kHuge}) {
    std::mt19937 random(kSeed);
    Floats values = gaussian(192, random);
    const Floats expected = there_and_back(values, 192, {6, 64, false}, {});
    values[70] = broken;
    SquareSums sums;
    quantized(values, 192, {6, 64, false}, {}, &sums);
    EXPECT_EQ(sums.refused_groups, 1);
    EXPECT_EQ(sums.value, 0);
    const Floats read = there_and_back(values, 192, {6, 64, false}, {});
    for (std::size_t i = 0; i < 192; ++i) {
      EXPECT_EQ(std::isnan(read[i]), i / 64 == 1) << i;
      if (i / 64 != 1) {
        EXPECT_EQ(read[i], expected[i]) << i;
      }
    }
  }
}

// Nothing is added to a scale: small values are as exact as large ones.
TEST(QuantizeError, IsTheSameAtEveryScale) {
  std::mt19937 random(kSeed);
  const Floats values = gaussian(1 << 14, random);
  const double expected = relative_error(values, {4, 64, false}, Rounding::nearest);
  for (const int power : {-60, -20, 20, 60}) {
    Floats scaled = values;
    for (float& value : scaled) value = std::ldexp(value, power);
    const Floats read = there_and_back(scaled, 1024, {4, 64, false}, {});
    double error = 0;
    double square = 0;
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      error += std::pow(double{scaled[i]} - read[i], 2);
      square += std::pow(double{scaled[i]}, 2);
    }
    EXPECT_NEAR(std::sqrt(error / square), expected, 1e-5) << "2^" << power;
  }
}

}  // namespace
}  // namespace strait::kernels::quantize_error_test
