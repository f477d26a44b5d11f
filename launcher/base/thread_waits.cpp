#include "launcher/base/thread_waits.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace strait::base {

bool set_thread_waits() {
  // The standard's variable, and those of GNU's and of LLVM's and Intel's runtimes.
  constexpr std::array kKnown{"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
  if (std::ranges::any_of(kKnown, [](const char* name) { return std::getenv(name) != nullptr; })) {
    return false;
  }
  // About 0.1 ms: longer than the gap between two operators of a small model, shorter than a
  // scheduler's turn. Measured with 0 to 300,000 spins, idle and loaded (tests/bench/RESULTS.md).
  ::setenv("GOMP_SPINCOUNT", "3000", 1);
  ::setenv("KMP_BLOCKTIME", "1", 1);  // milliseconds, the least above none
  return true;
}

}  // namespace strait::base
