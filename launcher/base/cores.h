#pragma once

#include <cstdint>
#include <optional>

namespace strait::base {

// The cores of this machine that this process may use, which containers and schedulers make fewer
// than there are.
std::int64_t usable_cores();

// Processor time in seconds: of this machine since it started, of this process since it began. What
// a hypervisor gives to other machines counts as used. Absent: the kernel does not say.
struct ProcessorTime {
  std::optional<double> machine;
  double process = 0;
};
ProcessorTime processor_time();

}  // namespace strait::base
