#pragma once

#include <span>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// Values as whole multiples of their group's scale, from -levels to levels, levels = 2^(bits-1) -
// 1, bits from 2 to 8. All scales first, as bfloat16, then codes of `bits` bits, lowest bits first.
// A scale has eight bits and a multiple seven, so that their product is exact: decoding gives the
// same bits everywhere, and there is no smallest scale below which values are lost.
inline constexpr std::size_t kSymmetricGroup = 128;

std::size_t symmetric_groups_size(std::size_t count, int bits);
// SyncError corrupt where a value is not finite; `what` names them.
void append_symmetric_groups(std::span<const float> values, int bits, net::Frame& out,
                             const char* what);

// SyncError corrupt where bytes are not `count` values, or would not give finite ones.
void check_symmetric_groups(std::span<const std::byte> bytes, std::size_t count, int bits,
                            const char* what);
void read_symmetric_groups(std::span<const std::byte> bytes, int bits, std::span<float> to,
                           const char* what);

}  // namespace strait::sync
