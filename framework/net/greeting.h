#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/net/hello.h"
#include "framework/net/link_error.h"
#include "framework/net/run_id.h"

namespace strait::net {

// What one end knows of itself when it judges the other's hello.
struct GreetingSelf {
  Hello hello;  // ours; its peer_incarnation is 0 before the peer's first hello
  RunId run;
  std::uint32_t generation = 0;
  std::string link;  // "boundary 0>1"
  ProcessName peer;  // the only process that may connect
};

// The judgement of one end about the other's hello. Both empty: they agree.
struct GreetingResult {
  std::optional<LinkError> refusal;  // sent to the peer
  std::optional<LinkError> fatal;    // ends this end too
  bool agreed() const { return !refusal && !fatal; }
};

// Pure. An older generation or a foreign run is refused, and this end waits on for the right peer.
// A newer generation ends this end. Different terms end both ends with the same sentence.
GreetingResult judge_greeting(const GreetingSelf& self, const RunId& run, std::uint32_t generation,
                              const Hello& theirs);

}  // namespace strait::net
