#pragma once

#include <cstdint>

namespace strait::process {

// Memory of this machine and process, as the kernel counts it, in bytes. 0: not known here.
struct HostMemory {
  std::int64_t total = 0;
  std::int64_t available = 0;  // for new allocations, without swapping
};
HostMemory host_memory();
// The most that this process has had in memory so far.
std::int64_t peak_memory();

}  // namespace strait::process
