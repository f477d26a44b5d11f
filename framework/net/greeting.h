#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/net/link_error.h"
#include "framework/net/link_options.h"
#include "framework/net/run_id.h"

namespace strait::net {

// How an end identifies itself when a path comes up: the payload of hello and hello_reply. Run and
// generation are in the header of every message.
struct Hello {
  ProcessName name;
  std::uint64_t incarnation = 0;       // random; a restarted end has another one
  std::uint64_t peer_incarnation = 0;  // of the peer that this end was connected to; 0: none yet
  std::uint64_t fragment_bytes = 0;
  Terms terms;
};

std::vector<std::byte> encode_hello(const Hello& hello);

// Nothing if the bytes are not a hello. Lengths are checked before use.
std::optional<Hello> decode_hello(std::span<const std::byte> bytes);

// The first disagreement, in words that both ends can print, or nothing: `stage 0.0 has codec =
// "raw", stage 1.0 has codec = "fixed"`.
std::optional<std::string> disagreement(const Hello& one, const Hello& other);

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
