#include "framework/net/wake_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

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
  // Full is as good as written: the descriptor is readable.
  [[maybe_unused]] const ssize_t written = ::write(descriptor(), &one, sizeof one);
}

void WakeSignal::lower() {
  // In this order a raise that comes in between costs one round too many, never one too few.
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(descriptor(), &count, sizeof count);
  raised_.store(false);
}

}  // namespace strait::net
