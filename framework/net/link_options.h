#pragma once

#include <chrono>
#include <vector>

#include "framework/net/identity.h"

namespace strait::net {

// What both ends must agree on before the first frame: plan hash, codec and its options, cache
// generation, build. A missing key or another value refuses the link, and the error names both
// values.
using Terms = std::vector<std::pair<std::string, std::string>>;

// The links of a process share its uplink. A background link uses what the foreground links leave,
// and never stops altogether. Each end chooses for what it sends. Memory links have no uplink to
// share.
enum class Priority : std::uint8_t { foreground, background };

// One link, as one of its ends sees it.
struct LinkOptions {
  std::string name;             // "boundary 0>1"; the same at both ends
  ProcessName peer;             // the only process allowed at the other end
  std::string peer_public_key;  // Z85; empty only on a plaintext node
  Terms terms;
  std::uint64_t window_bytes = std::uint64_t{64} << 20;  // sent, and not yet taken by the peer
  // The largest fragment; FragmentSize makes them smaller on a slow path.
  std::uint64_t fragment_bytes = std::uint64_t{1} << 20;
  std::chrono::milliseconds connect_limit{60'000};  // the link fails without a first hello by then
  // reconnect window after kSilence; 0: the link fails as soon as its path breaks
  std::chrono::milliseconds hold{120'000};
  Priority priority = Priority::foreground;
  // Both ends are processes of one host, and no path between them is to be imitated: fragments of a
  // foreground link go through shared memory where it can be had. Plaintext nodes share none, since
  // a peer has proved nothing.
  bool shared_memory = false;
};

}  // namespace strait::net
