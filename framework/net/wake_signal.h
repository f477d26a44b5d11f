#pragma once

#include <atomic>

#include "framework/file_descriptor.h"

namespace strait::net {

// A descriptor that wakes a thread in poll(2). Several raises before a lower() count once. Any
// thread raises; one thread waits and lowers.
class WakeSignal {
 public:
  WakeSignal();
  void raise();
  void lower();
  int descriptor() const { return event_.number(); }

 private:
  FileDescriptor event_;
  std::atomic<bool> raised_{false};
};

}  // namespace strait::net
