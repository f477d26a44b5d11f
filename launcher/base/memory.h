#pragma once

#include <cstdint>

namespace strait::base {

// Memory of this machine and process, as the kernel counts it, in bytes. 0: not known here.
struct HostMemory {
  std::int64_t total = 0;
  std::int64_t available = 0;  // for new allocations, without swapping
};
HostMemory host_memory();
// The most that this process has had in memory so far.
std::int64_t peak_memory();

// The memory that this process has taken for itself since this was made, at most. Pages of files
// are not in it: code, libraries and mapped data are shared by the processes of a machine, and the
// kernel takes them back when memory is short. Not thread safe.
class OwnMemory {
 public:
  OwnMemory();
  // Reads the kernel's counters. The kernel keeps a peak of all pages only, so a peak counts the
  // pages of files as of the nearest calls.
  std::int64_t peak();

 private:
  std::int64_t start_;
  std::int64_t peak_;
  std::int64_t all_pages_ = 0;   // their peak at the last call
  std::int64_t file_pages_ = 0;  // at the last call
};

}  // namespace strait::base
