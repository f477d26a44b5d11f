#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "framework/codec/choice.h"
#include "framework/codec/traffic.h"
#include "framework/mutex.h"
#include "framework/net/link.h"
#include "framework/store/sample.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// Watches one direction of one boundary for codec `auto`: every few steps it holds what the link
// was seen to carry against what the stage computed, and says which way rows go from there on.
//
// Threads: choose() is the encoding thread's; the others may be called by any.
class CodecChooser {
 public:
  static constexpr int kLookEvery = 4;  // steps; one alone is too noisy to judge by

  struct Change {
    store::Step step{};  // the first that goes the new way
    codec::Decision decision;
  };

  // Link and clock outlive the chooser.
  CodecChooser(const codec::ChoiceLimits& limits, const net::Link& link, const WaitClock& waits);

  // Before the first row of a step is encoded; `traffic` is the encoder's, so far.
  codec::Choice choose(store::Step step, const codec::Traffic& traffic);

  codec::Choice now() const;
  // Every change since this was last asked, for the events of the run.
  std::vector<Change> take_changes();

 private:
  // What was read at the last look.
  struct Look {
    std::chrono::steady_clock::time_point at;
    double waited = 0;  // seconds, by the compute thread, so far
    store::Step step{};
    codec::Traffic traffic;
  };
  codec::Measured since(const Look& before, const Look& after) const;

  const codec::ChoiceLimits limits_;
  const net::Link& link_;
  const WaitClock& waits_;
  std::optional<Look> last_;  // the encoding thread's

  mutable Mutex mutex_;
  codec::Choice now_ STRAIT_GUARDED_BY(mutex_);
  std::vector<Change> changes_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::stages
