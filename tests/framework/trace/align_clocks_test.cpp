#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/trace/merge_traces.h"

namespace strait::trace {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

// A message of true duration `takes` between two clocks that show `ahead` more than the true time.
ClockedMessage message(const std::vector<double>& ahead, std::size_t from, std::size_t to,
                       double at, double takes) {
  return {from, to, at + ahead[from], at + takes + ahead[to]};
}

TEST(AlignClocks, FastestMessagesOfBothDirectionsGiveTheOffset) {
  const std::vector<double> ahead = {0, 500, -40};
  const std::vector<ClockedMessage> messages = {
      message(ahead, 0, 1, 10, 90), message(ahead, 0, 1, 200, 4), message(ahead, 1, 0, 20, 4),
      message(ahead, 2, 1, 30, 7), message(ahead, 1, 2, 50, 7)};
  EXPECT_THAT(align_clocks({0, 0, 0}, messages), ElementsAre(0, DoubleEq(-500), DoubleEq(40)));
}

TEST(AlignClocks, ClocksThatNoMessagesConnectKeepTheGuess) {
  const std::vector<double> ahead = {0, 5, 9};
  // Only one direction: nothing tells the offset from the latency.
  const std::vector<ClockedMessage> messages = {message(ahead, 0, 1, 1, 1)};
  EXPECT_THAT(align_clocks({3, -5, -8}, messages), ElementsAre(3, -5, -8));
  EXPECT_THAT(align_clocks({}, {}), ElementsAre());
}

TEST(AlignClocks, GuessOfAGroupIsThatOfItsFirstClock) {
  const std::vector<double> ahead = {0, 100, 103};
  const std::vector<ClockedMessage> messages = {message(ahead, 1, 2, 0, 1),
                                                message(ahead, 2, 1, 5, 1)};
  EXPECT_THAT(align_clocks({0, -99, 0}, messages), ElementsAre(0, -99, DoubleEq(-102)));
}

}  // namespace
}  // namespace strait::trace
