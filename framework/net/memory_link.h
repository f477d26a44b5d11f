#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "framework/net/run_id.h"

namespace strait::net {

// The identity of one end of a memory link, as a Node has it on the wire.
struct MemoryEnd {
  ProcessName name;
  RunId run;
  std::uint32_t generation = 1;
  LinkOptions options;
};

// The two ends of a link inside one process: the promise of Link without a wire. Hello and terms
// are compared at once, and a refusal is what the first call on either end throws. Destroying one
// end ends the other with LinkError::Kind::lost, after the frames that are already there.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> memory_link(const MemoryEnd& left,
                                                                    const MemoryEnd& right);

}  // namespace strait::net
