#pragma once

#include "framework/net/memory_link.h"

namespace strait::worker {

// One end of the link between a stage and the coordinator.
inline net::MemoryEnd control_end(net::ProcessName own, net::ProcessName peer) {
  net::MemoryEnd end;
  end.name = own;
  end.options.name = "control";
  end.options.peer = peer;
  return end;
}

}  // namespace strait::worker
