#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strait::base {

// Everything up to the end of the stream, on behalf of `what` ("the run token"). UserError: there
// is more than `most` bytes, it has not ended within `limit`, or it cannot be read.
std::string read_all(int descriptor, const std::string& what, std::size_t most,
                     std::chrono::seconds limit);

// False: the reader is gone, or another error; errno says which.
bool write_all(int descriptor, std::span<const std::byte> bytes);

// `text` behind its length (4 bytes, little-endian): for a stream that stays open afterwards.
std::string length_prefixed(std::string_view text);

// What was read of such a text.
struct PrefixedText {
  enum class State { whole, ended, timed_out, too_long, unreadable };
  State state = State::whole;
  std::uint32_t size = 0;  // that its prefix states
  std::string text;
  int error = 0;  // errno of `unreadable`
};
// At most `most` bytes of text: a longer one is not read.
PrefixedText read_length_prefixed(int descriptor, std::uint32_t most,
                                  std::chrono::steady_clock::time_point deadline);

}  // namespace strait::base
