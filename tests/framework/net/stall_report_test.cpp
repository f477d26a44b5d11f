// The sentence that a user sees when nothing moves.
#include <gtest/gtest.h>

#include "framework/net/link.h"

namespace strait::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::chrono::steady_clock::time_point kNow{seconds(1000)};

LinkState waiting_state() {
  LinkState state;
  state.peer = "stage 1.0 (host b)";
  state.connected = true;
  state.awaited_bytes = 16'800'000;
  state.awaited_received = 3'100'000;
  state.last_data = kNow - seconds(38);
  state.last_heard = kNow - milliseconds(400);
  return state;
}

TEST(StallReportTest, SaysWhoWaitsForWhatSinceWhen) {
  const Wait wait{"stage 2.0", "forward of micro-batch 7", kNow - seconds(41)};
  EXPECT_EQ(
      stall_report(wait, waiting_state(), kNow),
      "stage 2.0 waits 41 s for forward of micro-batch 7 from stage 1.0 (host b): 3.1 of 16.8 "
      "MB received, last byte 38 s ago");
}

TEST(StallReportTest, SaysWhenNothingOfItIsHereAndTheLinkIsDown) {
  LinkState state = waiting_state();
  state.awaited_bytes = state.awaited_received = 0;
  state.connected = false;
  state.last_heard = kNow - milliseconds(4200);
  EXPECT_EQ(stall_report({"stage 2.0", "the plan", kNow - milliseconds(4500)}, state, kNow),
            "stage 2.0 waits 4.5 s for the plan from stage 1.0 (host b): nothing of it received, "
            "last byte 38 s ago; the link is down, last heartbeat 4.2 s ago");
}

}  // namespace
}  // namespace strait::net
