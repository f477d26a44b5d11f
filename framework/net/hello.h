#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/net/link_options.h"

namespace strait::net {

// How an end identifies itself when a path comes up: the payload of hello and hello_reply. Run and
// generation are in every message's header.
struct Hello {
  ProcessName name;
  std::uint64_t incarnation = 0;       // random; a restarted end has another one
  std::uint64_t peer_incarnation = 0;  // of the peer that this end was connected to; 0: none yet
  std::uint64_t fragment_bytes = 0;
  Terms terms;
};

std::vector<std::byte> encode_hello(const Hello& hello);

// Nothing for bytes that are no hello. Lengths are checked before they are believed.
std::optional<Hello> decode_hello(std::span<const std::byte> bytes);

// The first disagreement in words that are right for both ends, or nothing:
// `stage 0.0 has codec = "raw", stage 1.0 has codec = "fixed"`.
std::optional<std::string> disagreement(const Hello& one, const Hello& other);

}  // namespace strait::net
