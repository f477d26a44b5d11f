#pragma once

#include <memory>

#include "framework/net/identity.h"
#include "framework/net/link.h"
#include "framework/net/link_options.h"

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

namespace strait {

// Both ends of a link in this process: of `left` to `right`, and of `right` to `left`.
inline auto memory_links(net::ProcessName left, net::ProcessName right, const std::string& name,
                         std::uint64_t window_bytes = net::LinkOptions{}.window_bytes) {
  net::MemoryEnd here;
  here.name = left;
  here.options.name = name;
  here.options.peer = right;
  here.options.window_bytes = window_bytes;
  net::MemoryEnd there = here;
  there.name = right;
  there.options.peer = left;
  return net::memory_link(here, there);
}

}  // namespace strait
