#include "framework/trace/early_stop.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <vector>

namespace strait::trace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// After how many of these losses the run ends; 0: after none.
std::size_t end_of(EarlyStop stop, const std::vector<double>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i) {
    stop.evaluated(losses[i]);
    if (stop.is_due()) return i + 1;
  }
  return 0;
}

TEST(EarlyStop, EndsAfterSoManyEvaluationsInARowThatAreNotBetter) {
  EXPECT_EQ(end_of(EarlyStop({2, 0}), {3, 2, 2.5, 1.9, 1.9, 2, 1}), 6U);
  EXPECT_EQ(end_of(EarlyStop({1, 0}), {3, 2, 1}), 0U);
  EXPECT_EQ(end_of(EarlyStop({1, 0}), {3, 3}), 2U) << "an equal loss is not better";
  EXPECT_EQ(end_of(EarlyStop({0, 0}), {1, 2, 3, 4}), 0U) << "without the rule none ends";
}

TEST(EarlyStop, ComparesByTheLeastDifferenceWithTheBestThatWasBetter) {
  // 2.95 and 2.9 are not better than 3 by more than 0.1, and 2.85 is.
  EXPECT_EQ(end_of(EarlyStop({3, 0.1}), {3, 2.95, 2.9, 2.85, 2.8, 2.8, 2.8}), 7U);
}

TEST(EarlyStop, LossThatIsNotFiniteIsNotBetter) {
  EXPECT_EQ(end_of(EarlyStop({2, 0}), {kNaN, kNaN}), 2U);
  EXPECT_EQ(end_of(EarlyStop({2, 0}), {kNaN, 3, kNaN, 2, 2, kNaN}), 6U);
}

// As in a resumed run.
TEST(EarlyStop, GoesOnFromAnyStateAsIfItHadSeenAll) {
  const std::vector<double> losses = {3, 2, 2.5, 1.9, 1.9, 2, 1};
  for (std::size_t seen = 0; seen < 6; ++seen) {
    EarlyStop first({2, 0});
    for (std::size_t i = 0; i < seen; ++i) first.evaluated(losses[i]);
    const std::vector<double> rest(losses.begin() + static_cast<std::ptrdiff_t>(seen),
                                   losses.end());
    EXPECT_EQ(seen + end_of(EarlyStop({2, 0}, first.state()), rest), 6U);
  }
}

}  // namespace
}  // namespace strait::trace
