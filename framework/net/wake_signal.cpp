#include "framework/net/wake_signal.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace strait::net {

WakeSignal::WakeSignal() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_.open()) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void WakeSignal::raise() {
  if (raised_.exchange(true)) return;
  const std::uint64_t one = 1;
  // A full counter is as good as a write: the descriptor is readable.
  [[maybe_unused]] const ssize_t written = ::write(descriptor(), &one, sizeof one);
}

void WakeSignal::lower() {
  // Read first, then store. A raise between the two costs one extra round; in the other order it
  // would be lost.
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(descriptor(), &count, sizeof count);
  raised_.store(false);
}

}  // namespace strait::net
