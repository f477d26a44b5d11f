#pragma once

#include <span>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// Values as they travel uncompressed: float32 or bfloat16 (rounded to the nearest, ties to even),
// one behind the other, little endian.
void append_floats(std::span<const float> values, bool narrow, net::Frame& out);
std::size_t float_bytes(std::size_t count, bool narrow);

// SyncError corrupt where the bytes are not that many values; `what` names them.
void check_floats(std::span<const std::byte> bytes, std::size_t count, bool narrow,
                  const char* what);

// Into `to`, which says how many there must be; checked likewise.
void read_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                 const char* what);

}  // namespace strait::sync
