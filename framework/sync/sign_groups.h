#pragma once

#include <span>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// Values in a bit each: a sign, times a spread that both ends know, times the group's scale, which
// is the mean of |value| / spread (each counts as 3 at most, however small its spread). A value
// whose spread is zero comes out as zero. Group by group: f32 scale, then signs (1: negative),
// lowest bits first.
inline constexpr std::size_t kSignGroup = 2048;

std::size_t sign_groups_size(std::size_t count);
// SyncError corrupt where a value is not finite; `what` names them.
void append_sign_groups(std::span<const float> values, std::span<const float> spread,
                        net::Frame& out, const char* what);

// SyncError corrupt where bytes are not that many values, or a value is not finite.
void check_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                       const char* what);
// Checked likewise. `to` has the size of `spread`.
void read_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                      std::span<float> to, const char* what);

}  // namespace strait::sync
