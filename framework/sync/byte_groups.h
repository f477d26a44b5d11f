#pragma once

#include <span>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// Values as bytes on a grid between the least and the largest of their group, with zero on the
// grid, so that what is exactly zero stays it. Group by group: f32 step, u8 place of zero, a u8 per
// value. A group that holds a value that is not finite comes out as nothing but NaN: whoever looks
// at a gradient has to see that one replica's step went wrong.
inline constexpr std::size_t kByteGroup = 2048;

std::size_t byte_groups_size(std::size_t count);
void append_byte_groups(std::span<const float> values, net::Frame& out);

// SyncError corrupt where bytes are not `count` values; `what` names them.
void check_byte_groups(std::span<const std::byte> bytes, std::size_t count, const char* what);
void read_byte_groups(std::span<const std::byte> bytes, std::span<float> to, const char* what);

}  // namespace strait::sync
