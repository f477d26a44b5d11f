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

}  // namespace strait::net
