#pragma once

#include "framework/store/file_descriptor.h"

namespace strait::reach {

// A descriptor that poll(2) understands, by which other threads call one that waits there. Many
// raises are one wake.
class WakeSignal {
 public:
  WakeSignal();
  void raise();
  void lower();
  int number() const { return event_.number(); }

 private:
  store::FileDescriptor event_;
};

}  // namespace strait::reach
