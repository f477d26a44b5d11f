#pragma once

#include <span>

#include "framework/net/frame_memory.h"

// Quantised values in groups with a scale each. Functions that check or read throw SyncError
// (corrupt) if the bytes do not hold `count` (or to.size()) values; `what` names the values in the
// message.
namespace strait::sync {

// Bytes: a grid of 256 levels from the least to the largest value of the group, with zero on the
// grid, so that zeros stay exact. Per group: f32 step, u8 level of zero, a u8 per value.
// A group with a value that is not finite is read as NaNs: all replicas must see that one replica's
// step failed.
inline constexpr std::size_t kByteGroup = 2048;

std::size_t byte_groups_size(std::size_t count);
void append_byte_groups(std::span<const float> values, net::Frame& out);
void check_byte_groups(std::span<const std::byte> bytes, std::size_t count, const char* what);
void read_byte_groups(std::span<const std::byte> bytes, std::span<float> to, const char* what);

// Signs: a bit per value, times a spread that both ends know, times the group's scale, which is the
// mean of |value| / spread (clipped at 3, however small the spread). A value of spread zero is read
// as zero. Per group: f32 scale, then signs (1: negative), lowest bits first.
inline constexpr std::size_t kSignGroup = 2048;

std::size_t sign_groups_size(std::size_t count);
// SyncError (corrupt) if a value is not finite.
void append_sign_groups(std::span<const float> values, std::span<const float> spread,
                        net::Frame& out, const char* what);
// SyncError (corrupt) too if a value would not be finite.
void check_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                       const char* what);
// Checks the same. `to` has the size of `spread`.
void read_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                      std::span<float> to, const char* what);

// Symmetric levels: multiples of the group's scale from -levels to levels, levels = 2^(bits-1) - 1,
// bits from 2 to 8. All scales first, as bfloat16, then codes of `bits` bits, lowest bits first. A
// scale has 8 significant bits and a multiple 7, so their product is exact: decoding gives the same
// bits on every machine, and there is no smallest scale below which values are lost.
inline constexpr std::size_t kSymmetricGroup = 128;

std::size_t symmetric_groups_size(std::size_t count, int bits);
// SyncError (corrupt) if a value is not finite.
void append_symmetric_groups(std::span<const float> values, int bits, net::Frame& out,
                             const char* what);
// SyncError (corrupt) too if a value would not be finite.
void check_symmetric_groups(std::span<const std::byte> bytes, std::size_t count, int bits,
                            const char* what);
void read_symmetric_groups(std::span<const std::byte> bytes, int bits, std::span<float> to,
                           const char* what);

}  // namespace strait::sync
