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

void FlowCount::offer_bbr(bool offered) {
  offered_ = offered;
  if (offered) return;
  bbr_ = false;
  if (switches_) tried_ = 0;
}

void FlowCount::judge(Time now, double rate) {
  busy_ = waited_ = Seconds(0);
  bytes_ = 0;
  const bool helps = tried_ > 0 && rate > kHelps * rate_;
  if (tried_ > 0 && !helps) return end_trial(now);
  if (helps) {
    count_ = tried_;
    bbr_ = wants_bbr();
    pause_ = switches_ ? kSwitchBackPause : kFirstPause;
    if (switches_) next_trial_ = now + std::chrono::duration_cast<Time::duration>(pause_);
  }
  rate_ = rate;
  tried_ = 0;
  if (now < next_trial_) return;
  switches_ = offered_ && count_ == 1 && (bbr_ || switch_next_);
  if (switches_) {
    tried_ = count_;
  } else if (!bbr_ && count_ < most_) {  // bbr fills a path with one flow
    tried_ = std::min(2 * count_, most_);
  }
}

void FlowCount::end_trial(Time now) {
  busy_ = waited_ = Seconds(0);
  bytes_ = 0;
  tried_ = 0;
  switch_next_ = !switches_;
  next_trial_ = now + std::chrono::duration_cast<Time::duration>(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace strait::net
