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
  Hello hello;  // ours; peer_life is the life we have been talking to, 0 before the first hello
  RunId run;
  std::uint32_t generation = 0;
  std::string link;  // "boundary 0>1"
  ProcessName peer;  // the only process that may connect
};

// What one end makes of the other's hello. Nothing set: they agree.
struct GreetingResult {
  std::optional<LinkError> refusal;  // sent to the peer
  std::optional<LinkError> fatal;    // ends this end too
  bool agreed() const { return !refusal && !fatal; }
};

// Pure. An older generation and a foreign run are refused and this end waits on for the right
// peer; a newer generation ends this end; disagreeing terms end both, with the same sentence.
GreetingResult judge_greeting(const GreetingSelf& self, const RunId& run, std::uint32_t generation,
                              const Hello& theirs);

}  // namespace strait::net
