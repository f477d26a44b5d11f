#pragma once

#include <cstdint>
#include <string>

#include "framework/net/memory_link.h"

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
