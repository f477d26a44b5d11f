#pragma once

#include <bit>

#include "framework/net/frame_memory.h"
#include "framework/sync/sync_method.h"

// Values without compression: float32, or bfloat16 ("narrow"), one after the other, little endian.
// Functions that check or read throw SyncError (corrupt) if the bytes do not hold that many values;
// `what` names the values in the message.
namespace strait::sync {

// Rounded to the nearest, ties to even.
inline std::uint16_t to_bfloat16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN must not become an infinity by losing its low bits.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  bits += 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>(bits >> 16U);
}

inline float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

void append_floats(std::span<const float> values, bool narrow, net::Frame& out);
std::size_t float_bytes(std::size_t count, bool narrow);

void check_floats(std::span<const std::byte> bytes, std::size_t count, bool narrow,
                  const char* what);
// Reads to.size() values.
void read_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                 const char* what);

// As above, and SyncError (corrupt) for a value that is infinite or NaN too: for a slot that all
// replicas share and that nothing else checks before it changes.
void check_finite_floats(std::span<const std::byte> bytes, bool narrow, std::size_t count,
                         const char* what);
void read_finite_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                        const char* what);
// The mean of the members' contributions of `count` values, summed in the order of the members;
// `shares`: see shares_of().
std::vector<float> mean_of_finite_floats(Contributions contributions, bool narrow,
                                         std::size_t count, const char* what,
                                         std::span<const float> shares = {});

// Stores the results of a round of one exchange in a slot, on all of the stage's threads. decode()
// must have checked them.
void apply_floats(const Round& round, bool narrow, Slots& slots, std::string_view slot,
                  const char* what);

}  // namespace strait::sync
