#include "framework/net/flow_count.h"

#include <algorithm>
#include <utility>

namespace strait::net {

void FlowCount::update(Time now, std::uint64_t pushed, std::uint64_t confirmed, unsigned open) {
  const Seconds passed = now - std::exchange(updated_, now);
  const std::uint64_t before = std::exchange(confirmed_, confirmed);
  const bool counted = std::exchange(counts_, pushed >= confirmed + kLeastBacklog);
  if (!counted || count_ >= most_) return;
  if (open < tried_) {
    waited_ += passed;
    if (waited_ >= kConnects) end_trial(now);
    return;
  }
  if (busy_ >= kSettles) bytes_ += confirmed - std::min(before, confirmed);
  busy_ += passed;
  if (busy_ < kSettles + kSample) return;
  const double rate = static_cast<double>(bytes_) / Seconds(busy_ - kSettles).count();
  judge(now, rate);
}

void FlowCount::judge(Time now, double rate) {
  busy_ = waited_ = Seconds(0);
  bytes_ = 0;
  const bool helps = tried_ > 0 && rate > kHelps * rate_;
  if (tried_ > 0 && !helps) return end_trial(now);
  if (helps) {
    count_ = tried_;
    pause_ = kFirstPause;
  }
  rate_ = rate;
  tried_ = now >= next_trial_ && count_ < most_ ? std::min(2 * count_, most_) : 0;
}

void FlowCount::end_trial(Time now) {
  busy_ = waited_ = Seconds(0);
  bytes_ = 0;
  tried_ = 0;
  next_trial_ = now + std::chrono::duration_cast<Time::duration>(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace strait::net
