#include "launcher/reach/wake_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace strait::reach {

WakeSignal::WakeSignal() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_.open()) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void WakeSignal::raise() {
  const std::uint64_t one = 1;
  // Full only when it is raised already.
  static_cast<void>(::write(event_.number(), &one, sizeof one));
}

void WakeSignal::lower() {
  std::uint64_t raised = 0;
  // Empty when nobody has raised it.
  static_cast<void>(::read(event_.number(), &raised, sizeof raised));
}

}  // namespace strait::reach
