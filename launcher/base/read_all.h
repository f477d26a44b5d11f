#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strait::base {

// Reads to the end of the stream. `what` is for messages ("the run token"). UserError: more than
// `most` bytes, no end within `limit`, or a read error.
std::string read_all(int descriptor, const std::string& what, std::size_t most,
                     std::chrono::seconds limit);

// False: the reader is gone, or another error; errno says which.
bool write_all(int descriptor, std::span<const std::byte> bytes);

// `text` after its length (4 bytes, little-endian), for a stream that stays open.
std::string length_prefixed(std::string_view text);

// The result of reading such a text.
struct PrefixedText {
  enum class State { whole, ended, timed_out, too_long, unreadable };
  State state = State::whole;
  std::uint32_t size = 0;  // according to the prefix
  std::string text;
  int error = 0;  // errno of `unreadable`
};
// Reads at most `most` bytes; a longer text is not read.
PrefixedText read_length_prefixed(int descriptor, std::uint32_t most,
                                  std::chrono::steady_clock::time_point deadline);

}  // namespace strait::base
