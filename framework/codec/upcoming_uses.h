#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "framework/store/sample.h"

namespace strait::codec {

// The samples of a training step, in the order of their uses; the same function at both ends.
using UseOrder = std::function<std::vector<store::SampleId>(store::Step)>;

// The next use of each sample: walks the known order ahead of the current step, as far as callers
// ask and no further. Uses are numbered; only future ones are held. Sample ids are rows of a file:
// memory is allocated for every id up to the largest that was seen.
//
// Threads: one at a time.
class UpcomingUses {
 public:
  using Position = std::int64_t;
  static constexpr Position kUnknown = std::numeric_limits<Position>::max();  // not walked that far
  static constexpr std::size_t kMostAhead = std::size_t{1} << 22;             // uses; 24 bytes each

  struct Use {
    store::SampleId sample{};
    store::Step step{};
    Position next = kUnknown;  // the sample's use after this one
  };

  // The order has the steps before `last`.
  UpcomingUses(UseOrder order, store::Step last) : order_(std::move(order)), last_(last) {}

  // Whether any sample is used twice in the run. Walks an epoch at most, and does not keep it.
  bool any_repeats() const;

  // Forgets everything and begins at this step.
  void restart(store::Step from);

  // Steps before this one were walked.
  store::Step walked() const { return walked_; }

  // Walks one step further; false: the order ends there, or too much would be held.
  bool extend();

  // The uses that are held, oldest first, and the first one's number.
  Position begin() const { return first_; }
  Position end() const { return first_ + static_cast<Position>(uses_.size() - front_); }
  const Use& at(Position position) const {
    return uses_[front_ + static_cast<std::size_t>(position - first_)];
  }
  void pop_front();

  // The sample's first use after this step, which is that of begin(); kUnknown also if the sample
  // is not used in this step.
  Position next_after(store::Step step, store::SampleId sample) const;

 private:
  UseOrder order_;
  store::Step last_;
  store::Step walked_{};  // steps before this one are held or gone
  std::vector<Use> uses_;
  std::size_t front_ = 0;
  Position first_ = 0;
  std::vector<Position> latest_;  // use of each sample; below first_: gone
};

}  // namespace strait::codec
