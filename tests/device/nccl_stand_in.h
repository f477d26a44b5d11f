#pragma once

#include <atomic>

namespace strait::test_device {

// What the library that stands for NCCL is to do wrong, in all communicators of the process.
struct NcclFaults {
  std::atomic<bool> connects_never = false;
  std::atomic<int> connect_error = 0;
  std::atomic<int> async_error = 0;  // of connected communicators
  // What this rank gives to a sum reaches no other: as if its process had died.
  std::atomic<int> silent_rank = -1;

  void clear() {
    connects_never = false;
    connect_error = async_error = 0;
    silent_rank = -1;
  }
};

// Exported by the library.
inline constexpr const char* kNcclFaults = "nccl_faults";
using GetNcclFaults = NcclFaults* (*)();

}  // namespace strait::test_device
