#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "framework/net/run_id.h"

namespace strait::net {

// The identity of one end of a memory link, like that of a Node on the wire.
struct MemoryEnd {
  ProcessName name;
  RunId run;
  std::uint32_t generation = 1;
  LinkOptions options;
};

// The two ends of a link inside one process: the promise of Link without a wire. Hello and terms
// are compared at once; if they disagree, the first call on either end throws the refusal.
// Destroying one end ends the other with LinkError::Kind::lost, after the frames that have already
// arrived.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> memory_link(const MemoryEnd& left,
                                                                    const MemoryEnd& right);

}  // namespace strait::net
