#include "framework/codec/upcoming_uses.h"

#include <unordered_set>

namespace strait::codec {
namespace {

store::Step next_step(store::Step step) { return store::Step{number(step) + 1}; }

}  // namespace

bool UpcomingUses::any_repeats() const {
  std::unordered_set<store::SampleId> seen;
  for (store::Step step{0}; step < last_; step = next_step(step)) {
    for (const store::SampleId sample : order_(step)) {
      if (!seen.insert(sample).second) return true;
    }
    // Not walked further: if no sample repeats after all, entries are cached in vain.
    if (seen.size() > kMostAhead) return true;
  }
  return false;
}

void UpcomingUses::restart(store::Step from) {
  first_ = end();
  uses_.clear();
  front_ = 0;
  walked_ = from;
}

bool UpcomingUses::extend() {
  if (walked_ >= last_ || uses_.size() - front_ >= kMostAhead) return false;
  // Past uses are erased only when they fill half of the vector, so that each element moves once.
  if (front_ > uses_.size() / 2) {
    uses_.erase(uses_.begin(), uses_.begin() + static_cast<std::ptrdiff_t>(front_));
    front_ = 0;
  }
  for (const store::SampleId sample : order_(walked_)) {
    const auto id = static_cast<std::size_t>(number(sample));
    // Grown by half, because samples come in random order.
    if (id >= latest_.size()) latest_.resize(id + id / 2 + 1, -1);
    const Position position = end();
    if (latest_[id] >= first_) {
      uses_[front_ + static_cast<std::size_t>(latest_[id] - first_)].next = position;
    }
    latest_[id] = position;
    uses_.push_back({sample, walked_, kUnknown});
  }
  walked_ = next_step(walked_);
  return true;
}

void UpcomingUses::pop_front() {
  ++front_;
  ++first_;
}

UpcomingUses::Position UpcomingUses::next_after(store::Step step, store::SampleId sample) const {
  for (Position position = begin(); position < end() && at(position).step == step; ++position) {
    if (at(position).sample == sample) return at(position).next;
  }
  return kUnknown;
}

}  // namespace strait::codec
