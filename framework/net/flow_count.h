#pragma once

#include <chrono>
#include <cstdint>

#include "framework/net/wire_format.h"

namespace strait::net {

// How many flows a link uses, and with which congestion control. One TCP flow does not fill a long
// path that loses packets. The rate of the link is measured while there is enough to send. Then bbr
// is tried where it is offered, or twice as many flows, and kept if they carry clearly more. A
// trial that does not help is repeated after growing pauses, because paths change; then bbr is
// dropped in the same way. Pure: no clock, no lock.
class FlowCount {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::duration<double>;

  // Less than this in flight says nothing about the path.
  static constexpr std::uint64_t kLeastBacklog = std::uint64_t{128} << 10;
  // New flows need some round trips to reach their speed.
  static constexpr Seconds kSettles{1.0};
  static constexpr Seconds kSample{1.5};
  static constexpr Seconds kFirstPause{5.0};
  static constexpr Seconds kLongestPause{600.0};
  // The trial of what carried less takes seconds of a path that is fast now.
  static constexpr Seconds kSwitchBackPause{60.0};
  // Flows that have not connected by then are not waited for.
  static constexpr Seconds kConnects{10.0};
  static constexpr double kHelps = 1.25;

  explicit FlowCount(unsigned least = 1, unsigned most = kMaxFlows) : count_(least), most_(most) {}

  // Called after every change. `pushed`: the position up to which there is something to send.
  // `confirmed`: up to which the peer has it. `open`: flows that can be used now.
  void update(Time now, std::uint64_t pushed, std::uint64_t confirmed, unsigned open);

  // Whether bbr can be used. Not from the start: next to cubic, which fills queues, one flow of
  // it gets less than its share of a clean path.
  void offer_bbr(bool offered);
  bool wants_bbr() const { return bbr_ != (tried_ > 0 && switches_); }

  unsigned wanted() const { return tried_ > 0 ? tried_ : count_; }
  unsigned most() const { return most_; }

 private:
  void judge(Time now, double rate);
  void end_trial(Time now);

  unsigned count_;
  unsigned most_;
  unsigned tried_ = 0;  // 0: no trial
  bool offered_ = false;
  bool bbr_ = false;
  bool switches_ = false;  // the trial is one of the other congestion control
  bool switch_next_ = true;
  double rate_ = 0;  // with count_ flows, in bytes per second
  Time next_trial_{};
  Seconds pause_ = kFirstPause;

  Time updated_{};
  std::uint64_t confirmed_ = 0;
  bool counts_ = false;  // there was enough to send since the last update
  // Of this sample, with the time to settle.
  Seconds busy_{0};
  Seconds waited_{0};  // for flows to connect
  std::uint64_t bytes_ = 0;
};

}  // namespace strait::net
