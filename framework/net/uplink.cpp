#include "framework/net/uplink.h"

namespace strait::net {

void Uplink::change(Priority priority, Load before, Load after) {
  if (before == after) return;
  if (priority == Priority::background) {
    background_ += (after != Load::none) - (before != Load::none);
    return;
  }
  // Counted as differences, so that no link has to be looked up.
  foreground_waiting_ += (after == Load::waiting) - (before == Load::waiting);
  foreground_in_flight_ += (after == Load::in_flight) - (before == Load::in_flight);
  // Background links that already had their turn in this round must get another one soon.
  if (before > after) ask_again_at(Time::min());
}

void Uplink::foreground_sent(std::uint64_t bytes, double bytes_per_second) {
  foreground_.bytes += bytes;
  if (bytes_per_second > 0) {
    foreground_rate_ = bytes_per_second;
    foreground_.takes +=
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second);
  } else {
    foreground_.unmeasured += bytes;
  }
}

Uplink::Time Uplink::take_due() { return std::exchange(due_, Time::max()); }

}  // namespace strait::net
