#include "launcher/process/thread_waits.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace strait::process {

bool set_thread_waits() {
  // The standard's variable, and those of GNU's and of LLVM's and Intel's runtimes.
  constexpr std::array kKnown{"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
  if (std::ranges::any_of(kKnown, [](const char* name) { return std::getenv(name) != nullptr; })) {
    return false;
  }
  ::setenv(kKnown.front(), "passive", 1);
  return true;
}

}  // namespace strait::process
