// What a sample's entry holds after visits, on both sides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/row_quantization.h"

namespace strait::kernels::entry_test {
namespace {

constexpr std::int64_t kTokens = 4;
constexpr std::int64_t kWide = 200;
constexpr std::uint32_t kSeed = 5;
using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

// One sample on both sides of a boundary.
class TwoEnds {
 public:
  explicit TwoEnds(const GroupFormat& format)
      : format_(format),
        sent_(static_cast<std::size_t>(entry_bytes(kTokens, kWide)), std::byte{0x5A}),
        received_(sent_.size(), std::byte{0xA5}),
        message_(static_cast<std::size_t>(kTokens * token_bytes(format, kWide))),
        read_(static_cast<std::size_t>(kTokens * kWide)) {}

  // Returns what the receiver computes with.
  const Floats& visit(const Floats& values, Rounding rounding = Rounding::nearest) {
    const Draw draw{rounding, visits_};
    const bool fresh = visits_++ == 0;
    sums_ = {};
    quantize_change({values.data(), Element::float32, kTokens, kWide}, format_, draw, fresh,
                    sent_.data(), message_.data(), &sums_);
    apply_change(message_.data(), format_, fresh, received_.data(),
                 {read_.data(), Element::float32, kTokens, kWide});
    return read_;
  }

  bool equal() const { return sent_ == received_; }
  const Bytes& entry() const { return received_; }
  const SquareSums& sums() const { return sums_; }
  Floats loaded() const {
    Floats values(read_.size());
    load_entry(received_.data(), {values.data(), Element::float32, kTokens, kWide});
    return values;
  }

 private:
  GroupFormat format_;
  Bytes sent_;
  Bytes received_;
  Bytes message_;
  Floats read_;
  SquareSums sums_;
  std::uint64_t visits_ = 0;
};

Floats gaussian_row(std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(static_cast<std::size_t>(kTokens * kWide));
  for (float& value : values) value = normal(random);
  return values;
}

void drift(Floats& values, float by, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (float& value : values) value += by * normal(random);
}

double distance(const Floats& left, const Floats& right) {
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    error += std::pow(double{left[i]} - right[i], 2);
    square += std::pow(double{right[i]}, 2);
  }
  return std::sqrt(error / square);
}

TEST(Entry, IsEqualAtBothEndsAfterManyUses) {
  std::mt19937 random(kSeed);
  for (const bool rotate : {false, true}) {
    for (const int bits : {2, 4, 7}) {
      TwoEnds ends({bits, 64, rotate});
      Floats values = gaussian_row(random);
      for (int visit = 0; visit < 300; ++visit) {
        const Rounding rounding = visit % 2 == 0 ? Rounding::nearest : Rounding::unbiased;
        const Floats& read = ends.visit(values, rounding);
        ASSERT_TRUE(ends.equal()) << bits << " bits, visit " << visit << ", seed " << kSeed;
        ASSERT_EQ(read, ends.loaded()) << "computed with something else than the entry";
        drift(values, visit % 50 == 0 ? 1.0F : 0.05F, random);
      }
    }
  }
}

TEST(Entry, ReportsErrorOfTheReceiver) {
  std::mt19937 random(kSeed);
  TwoEnds ends({4, 64, false});
  Floats values = gaussian_row(random);
  ends.visit(values);
  const Floats before = ends.loaded();
  drift(values, 0.1F, random);
  const Floats& read = ends.visit(values);
  EXPECT_NEAR(std::sqrt(ends.sums().error / ends.sums().value), distance(read, values), 1e-5);
  EXPECT_NEAR(std::sqrt(ends.sums().change / ends.sums().value), distance(before, values), 1e-5);
}

// A change is counted from what is stored, so the entry's own rounding is part of the next change:
// values that rest are approached to within one rounding of the entry, however often they come.
TEST(Entry, DoesNotAccumulateItsOwnRounding) {
  std::mt19937 random(kSeed);
  TwoEnds ends({4, 64, false});
  const Floats values = gaussian_row(random);
  Bytes whole(ends.entry().size());
  store_entry({values.data(), Element::float32, kTokens, kWide}, whole.data());
  Floats stored(values.size());
  load_entry(whole.data(), {stored.data(), Element::float32, kTokens, kWide});
  const double one_rounding = distance(stored, values);
  for (int visit = 0; visit < 6; ++visit) ends.visit(values);
  double worst = 0;
  for (int visit = 0; visit < 500; ++visit)
    worst = std::max(worst, distance(ends.visit(values), values));
  EXPECT_LT(worst, 2.5 * one_rounding) << "seed " << kSeed;
  EXPECT_GT(one_rounding, 0);
}

// Slowly moving values: the distance stays that of the changes, visit after visit.
TEST(Entry, FollowsValuesThatMove) {
  std::mt19937 random(kSeed);
  TwoEnds ends({3, 64, false});
  Floats values = gaussian_row(random);
  for (int visit = 0; visit < 5; ++visit) ends.visit(values);
  for (int visit = 0; visit < 200; ++visit) {
    drift(values, 0.05F, random);
    ASSERT_LT(distance(ends.visit(values), values), 0.03)
        << "visit " << visit << ", seed " << kSeed;
  }
}

TEST(Entry, StaysAsItIsWhereAGroupIsRefused) {
  std::mt19937 random(kSeed);
  TwoEnds ends({4, 64, true});
  Floats values = gaussian_row(random);
  ends.visit(values);
  const Floats before = ends.loaded();
  Floats broken = values;
  drift(broken, 0.1F, random);
  broken[70] = std::numeric_limits<float>::quiet_NaN();  // second group of the first token
  const Floats read = ends.visit(broken);
  EXPECT_EQ(ends.sums().refused_groups, 1);
  ASSERT_TRUE(ends.equal());
  const Floats after = ends.loaded();
  for (std::size_t i = 0; i < after.size(); ++i) {
    ASSERT_FALSE(std::isnan(after[i])) << i;
    EXPECT_EQ(std::isnan(read[i]), i >= 64 && i < 128) << i;
    if (i >= 64 && i < 128) {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
  const Floats& healed = ends.visit(values);
  EXPECT_TRUE(ends.equal());
  EXPECT_LT(distance(healed, values), 0.05);
}

TEST(Entry, IsZeroIfCacheMissIsRefused) {
  std::mt19937 random(kSeed);
  TwoEnds ends({4, 32, false});
  Floats values = gaussian_row(random);
  values[3] = std::numeric_limits<float>::infinity();
  ends.visit(values);
  ASSERT_TRUE(ends.equal());
  const Floats after = ends.loaded();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(after[i], 0) << i;
}

TEST(Entry, StoresNothingThatIsNotFinite) {
  std::mt19937 random(kSeed);
  Floats values = gaussian_row(random);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[100] = -std::numeric_limits<float>::infinity();
  values[399] = kHuge;
  Bytes entry(static_cast<std::size_t>(entry_bytes(kTokens, kWide)));
  store_entry({values.data(), Element::float32, kTokens, kWide}, entry.data());
  Floats stored(values.size());
  load_entry(entry.data(), {stored.data(), Element::float32, kTokens, kWide});
  for (const std::size_t i : {0U, 100U, 399U}) values[i] = 0;
  EXPECT_LT(distance(stored, values), 0.01);
}

}  // namespace
}  // namespace strait::kernels::entry_test
