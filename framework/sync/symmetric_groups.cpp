#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "framework/sync/bit_stream.h"
#include "framework/sync/float_codes.h"
#include "framework/sync/group_codes.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

std::size_t symmetric_groups_of(std::size_t count) {
  return (count + kSymmetricGroup - 1) / kSymmetricGroup;
}

int symmetric_levels(int bits) { return (1 << (bits - 1)) - 1; }

// The smallest bfloat16 scale with which the largest value is within the levels.
std::uint16_t scale_of(float largest, int levels) {
  const float exact = largest / static_cast<float>(levels);
  const auto bits = std::bit_cast<std::uint32_t>(exact);
  auto scale = static_cast<std::uint16_t>(bits >> 16U);
  // Truncation rounded down; one more is the next bfloat16.
  if (from_bfloat16(scale) < exact) ++scale;
  return scale;
}

float largest_of(std::span<const float> values, const char* what) {
  float largest = 0;
  bool finite = true;
  for (const float value : values) {
    finite &= std::isfinite(value);
    largest = std::max(largest, std::abs(value));
  }
  if (finite) return largest;
  throw SyncError(SyncError::Kind::corrupt, "{} has values that are infinite or NaN", what);
}

float scale_at(const std::byte* scales, std::size_t group) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, scales + group * sizeof bits, sizeof bits);
  return from_bfloat16(bits);
}

}  // namespace

std::size_t symmetric_groups_size(std::size_t count, int bits) {
  const std::size_t code_bits = count * static_cast<std::size_t>(bits);
  return symmetric_groups_of(count) * sizeof(std::uint16_t) + (code_bits + 7) / 8;
}

void append_symmetric_groups(std::span<const float> values, int bits, net::Frame& out,
                             const char* what) {
  const int levels = symmetric_levels(bits);
  const std::size_t begin = out.size();
  out.resize(begin + symmetric_groups_of(values.size()) * sizeof(std::uint16_t));
  std::byte* scales = out.data() + begin;
  // All scales come before all codes, so codes are collected and appended at the end.
  std::vector<std::byte> code_bytes;
  PlainBitsWriter codes(code_bytes, values.size() * static_cast<std::size_t>(bits));
  for (std::size_t first = 0; first < values.size(); first += kSymmetricGroup) {
    const auto group = values.subspan(first, std::min(kSymmetricGroup, values.size() - first));
    const std::uint16_t scale_bits = scale_of(largest_of(group, what), levels);
    std::memcpy(scales, &scale_bits, sizeof scale_bits);
    scales += sizeof scale_bits;
    const float scale = from_bfloat16(scale_bits);
    for (const float value : group) {
      // nearbyint rounds ties to even in the default rounding mode, on every machine.
      const int code = scale > 0 ? static_cast<int>(std::nearbyint(value / scale)) : 0;
      codes.put(static_cast<std::uint32_t>(code + levels), static_cast<unsigned>(bits));
    }
  }
  codes.finish();
  out.insert(out.end(), code_bytes.begin(), code_bytes.end());
}

void check_symmetric_groups(std::span<const std::byte> bytes, std::size_t count, int bits,
                            const char* what) {
  if (bytes.size() != symmetric_groups_size(count, bits)) {
    throw SyncError(SyncError::Kind::corrupt, "{} has {} bytes; {} values of {} bits take {}", what,
                    bytes.size(), count, bits, symmetric_groups_size(count, bits));
  }
  // The largest multiple must be finite, too.
  const auto beyond = static_cast<float>(2 * symmetric_levels(bits) + 1);
  for (std::size_t group = 0; group < symmetric_groups_of(count); ++group) {
    const float scale = scale_at(bytes.data(), group);
    if (!std::signbit(scale) && std::isfinite(scale * beyond)) continue;
    throw SyncError(SyncError::Kind::corrupt, "{} has a group with a scale of {}", what, scale);
  }
}

void read_symmetric_groups(std::span<const std::byte> bytes, int bits, std::span<float> to,
                           const char* what) {
  check_symmetric_groups(bytes, to.size(), bits, what);
  const int levels = symmetric_levels(bits);
  PlainBitsReader codes(bytes.subspan(symmetric_groups_of(to.size()) * sizeof(std::uint16_t)));
  for (std::size_t first = 0; first < to.size(); first += kSymmetricGroup) {
    const float scale = scale_at(bytes.data(), first / kSymmetricGroup);
    const std::size_t last = std::min(first + kSymmetricGroup, to.size());
    for (std::size_t i = first; i < last; ++i) {
      const int code = static_cast<int>(codes.take(static_cast<unsigned>(bits))) - levels;
      to[i] = static_cast<float>(code) * scale;
    }
  }
}

}  // namespace strait::sync
