#pragma once

#include <optional>
#include <vector>

#include "framework/codec/choice.h"
#include "framework/codec/traffic.h"
#include "framework/mutex.h"
#include "framework/net/link.h"
#include "framework/store/sample.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// Chooses the encoding of one direction of one boundary for codec `auto`: every kSampleEvery steps
// it compares the bandwidth of the link with the compute time of the stage in training steps.
//
// Threads: the encoding thread calls choose(); any thread calls the others.
class CodecChooser {
 public:
  static constexpr int kSampleEvery = 4;  // steps; measurements of a single step are too noisy

  struct Made {
    store::Step step{};  // the first step in this encoding, or the first with known costs
    codec::Decision decision;
  };

  // Link and clock outlive the chooser.
  CodecChooser(const codec::ChoiceLimits& limits, const net::Link& link, const WaitClock& waits);

  // Called before the first row of a step is encoded. `traffic`: of the encoder so far.
  codec::Choice choose(store::Step step, const codec::Traffic& traffic);

  codec::Choice now() const;
  // The first decision, and later ones that changed something, since the last call. For the events
  // of the run.
  std::vector<Made> take_decisions();

 private:
  struct Sample {
    double busy = 0;  // seconds of the compute thread so far
    store::Step step{};
    codec::Traffic traffic;
  };
  codec::Measured measure(const Sample& before, const Sample& after) const;

  const codec::ChoiceLimits limits_;
  const net::Link& link_;
  const WaitClock& waits_;
  std::optional<Sample> last_;  // used by the encoding thread only

  mutable Mutex mutex_;
  codec::Choice now_ STRAIT_GUARDED_BY(mutex_);
  bool decided_ STRAIT_GUARDED_BY(mutex_) = false;
  std::vector<Made> decisions_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::stages
