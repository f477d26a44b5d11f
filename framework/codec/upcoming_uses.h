#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "framework/store/sample.h"

namespace strait::codec {

// The samples of a training step, in the order of use; the same function at both ends.
using UseOrder = std::function<std::vector<store::SampleId>(store::Step)>;

// The next use of each sample. Walks the known order ahead of the current step, as far as callers
// ask. Uses are numbered, and only future ones are held. Sample ids are rows of a file: memory is
// allocated for every id up to the largest one seen.
//
// Threads: one at a time.
class UpcomingUses {
 public:
  using Position = std::int64_t;
  // not walked that far yet
  static constexpr Position kUnknown = std::numeric_limits<Position>::max();
  static constexpr std::size_t kMostAhead = std::size_t{1} << 22;  // number of uses, 24 bytes each

  struct Use {
    store::SampleId sample{};
    store::Step step{};
    Position next = kUnknown;  // the next use of the same sample
  };

  // The order covers the steps before `last`.
  UpcomingUses(UseOrder order, store::Step last) : order_(std::move(order)), last_(last) {}

  // Whether any sample is used twice in the run. Walks one epoch at most, and stores nothing.
  bool any_repeats() const;

  // Forgets everything and starts at this step.
  void restart(store::Step from);

  // Steps before this one were walked.
  store::Step walked() const { return walked_; }

  // Walks one more step. False: the order ends there, or too much would be held.
  bool extend();

  // The uses that are held, oldest first, and the number of the first one.
  Position begin() const { return first_; }
  Position end() const { return first_ + static_cast<Position>(uses_.size() - front_); }
  const Use& at(Position position) const {
    return uses_[front_ + static_cast<std::size_t>(position - first_)];
  }
  void pop_front();

  // The next use of a sample of this step, which must be the step of begin(). kUnknown also if the
  // sample is not used in this step.
  Position next_after(store::Step step, store::SampleId sample) const;

 private:
  UseOrder order_;
  store::Step last_;
  store::Step walked_{};  // steps before this one are held or dropped
  std::vector<Use> uses_;
  std::size_t front_ = 0;
  Position first_ = 0;
  std::vector<Position> latest_;  // latest use of each sample; below first_: dropped
};

}  // namespace strait::codec
