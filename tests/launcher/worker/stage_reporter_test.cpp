#include "launcher/worker/stage_reporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <stdexcept>

#include "stages/wait_clock.h"
#include "tests/memory_links.h"

namespace strait::worker {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A link that counts calls of state().
class CountingLink : public net::Link {
 public:
  bool send_until(net::Frame& /*frame*/, Clock::time_point /*deadline*/) override { return true; }
  net::Frame receive() override { throw std::logic_error("not expected"); }
  std::optional<net::Frame> receive_until(Clock::time_point /*deadline*/) override { return {}; }
  bool flush(Clock::time_point /*deadline*/) override { return true; }
  void abort(const net::LinkError& /*cause*/) override {}
  net::LinkState state() const override {
    ++reads;
    return shown;
  }

  net::LinkState shown;
  mutable std::atomic<int> reads = 0;
};

class StageReporterTest : public testing::Test {
 protected:
  StageReporterTest() {
    auto [stage, coordinator] = memory_links(kStage, net::ProcessName::coordinator(), "control");
    coordinator_ = std::move(coordinator);
    control_ = std::make_unique<ControlClient>(std::move(stage));
  }

  run::Progress next_report() {
    while (true) {
      const run::StageMessage message = run::parse_stage_message(coordinator_->receive());
      if (const auto* progress = std::get_if<run::Progress>(&message)) return *progress;
    }
  }

  static constexpr net::ProcessName kStage{0, 0};
  std::unique_ptr<net::Link> coordinator_;
  std::unique_ptr<ControlClient> control_;
};

TEST_F(StageReporterTest, StopsReadingLinksAfterStageFails) {
  CountingLink link;
  stages::WaitClock waits;
  StageReporter reporter(*control_, kStage, std::nullopt);
  try {
    const auto watching =
        reporter.watch(waits, {{&link, {1, 0}, StageReporter::Carries::activations, {}}});
    while (next_report().links.empty()) {
    }
    throw std::runtime_error("the stage failed");
  } catch (const std::runtime_error&) {
    // Links are destroyed between the end of the stage and its last report.
  }
  const int reads = link.reads;
  while (!next_report().links.empty()) {
  }
  next_report();
  EXPECT_EQ(link.reads, reads);
}

TEST_F(StageReporterTest, ListsReplicasDisconnectedForTime) {
  using Carries = StageReporter::Carries;
  const auto now = Clock::now();
  CountingLink own, heard, for_moments, for_long, vote;
  for (CountingLink* link : {&own, &heard, &for_moments, &for_long, &vote}) {
    link->shown.last_heard = now - 1min;
  }
  for (CountingLink* link : {&heard, &vote}) link->shown.connected = true;
  for_moments.shown.last_heard = now;
  stages::WaitClock waits;
  StageReporter reporter(*control_, kStage, std::nullopt);
  {
    const auto watching = reporter.watch(waits, {{&own, {1, 0}, Carries::activations, {}},
                                                 {&heard, {0, 1}, Carries::weights, {}},
                                                 {&for_moments, {0, 2}, Carries::weights, {}},
                                                 {&for_long, {0, 3}, Carries::weights, {}},
                                                 {&vote, {0, 3}, Carries::weights, {}}});
    EXPECT_EQ(reporter.disconnected_for(30s), (std::set<std::uint32_t>{3}));
  }
  EXPECT_TRUE(reporter.disconnected_for(30s).empty());
}

}  // namespace
}  // namespace strait::worker
