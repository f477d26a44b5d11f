#include "framework/net/rate_meter.h"

#include <algorithm>

namespace strait::net {

void RateMeter::look(Time now, std::uint64_t sent, std::uint64_t confirmed) {
  if (open_ && confirmed > base_ && now > began_) {
    const std::chrono::duration<double> passed = now - began_;
    const bool idle = confirmed == sent;
    if (idle || passed >= kLongest) {
      const std::uint64_t bytes = confirmed - base_;
      if (bytes >= kLeastBytes) {
        rates_[next_] = static_cast<double>(bytes) / passed.count();
        next_ = (next_ + 1) % rates_.size();
      }
      open_ = false;
    }
  }
  if (!open_ && sent > confirmed) {
    open_ = true;
    began_ = now;
    base_ = confirmed;
  }
}

double RateMeter::bytes_per_second() const {
  return *std::max_element(rates_.begin(), rates_.end());
}

}  // namespace strait::net
