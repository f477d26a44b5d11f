#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "framework/sync/group_codes.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kByteGroupHead = sizeof(float) + 1;
constexpr float kByteSteps = 255;

struct ByteGrid {
  float step = 0;
  std::uint8_t zero = 0;
};

// Without an early end, so that a compiler can vectorise it.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  bool finite = true;
  for (const float value : values) {
    finite &= (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
  }
  return finite;
}

struct Extent {
  float least = 0;
  float largest = 0;
};

// In lanes, so that a compiler can vectorise it.
Extent extent_of(std::span<const float> values) {
  constexpr std::size_t kExtentLanes = 16;
  std::array<float, kExtentLanes> least{};
  std::array<float, kExtentLanes> largest{};
  std::size_t i = 0;
  for (; i + kExtentLanes <= values.size(); i += kExtentLanes) {
    for (std::size_t lane = 0; lane < kExtentLanes; ++lane) {
      least[lane] = std::min(least[lane], values[i + lane]);
      largest[lane] = std::max(largest[lane], values[i + lane]);
    }
  }
  for (; i < values.size(); ++i) {
    least[0] = std::min(least[0], values[i]);
    largest[0] = std::max(largest[0], values[i]);
  }
  return {std::ranges::min(least), std::ranges::max(largest)};
}

ByteGrid grid_of(std::span<const float> values) {
  if (!all_finite(values)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const auto [least, largest] = extent_of(values);
  // Halves, because the difference of the two may overflow.
  const float step = (largest / 2 - least / 2) / (kByteSteps / 2);
  if (step == 0) return {};
  return {step, static_cast<std::uint8_t>(std::min(std::round(-least / step), kByteSteps))};
}

// Calls for every group with its offset in bytes, its first value and its size.
template <class Call>
void for_each_byte_group(std::size_t count, Call call) {
  for (std::size_t first = 0, at = 0; first < count; first += kByteGroup) {
    const std::size_t size = std::min(kByteGroup, count - first);
    call(at, first, size);
    at += kByteGroupHead + size;
  }
}

float step_at(const std::byte* group) {
  float step = 0;
  std::memcpy(&step, group, sizeof step);
  return step;
}

}  // namespace

std::size_t byte_groups_size(std::size_t count) {
  return count + (count + kByteGroup - 1) / kByteGroup * kByteGroupHead;
}

void append_byte_groups(std::span<const float> values, net::Frame& out) {
  const std::size_t begin = out.size();
  out.resize(begin + byte_groups_size(values.size()));
  for_each_byte_group(values.size(), [&](std::size_t at, std::size_t first, std::size_t size) {
    const std::span<const float> group = values.subspan(first, size);
    const ByteGrid grid = grid_of(group);
    std::byte* to = out.data() + begin + at;
    std::memcpy(to, &grid.step, sizeof grid.step);
    to[sizeof grid.step] = std::byte{grid.zero};
    to += kByteGroupHead;
    if (!(grid.step > 0)) {
      std::fill_n(to, size, std::byte{0});
      return;
    }
    // A half is added so that truncation rounds. Rounding errors may exceed the ends, hence the
    // clamp.
    const float zero = static_cast<float>(grid.zero) + 0.5F;
    for (std::size_t i = 0; i < size; ++i) {
      const float level = std::clamp(group[i] / grid.step + zero, 0.0F, kByteSteps);
      to[i] = static_cast<std::byte>(static_cast<int>(level));
    }
  });
}

void check_byte_groups(std::span<const std::byte> bytes, std::size_t count, const char* what) {
  if (bytes.size() != byte_groups_size(count)) {
    throw SyncError(SyncError::Kind::corrupt, "{} has {} bytes; {} values take {}", what,
                    bytes.size(), count, byte_groups_size(count));
  }
  for_each_byte_group(count, [&](std::size_t at, std::size_t, std::size_t) {
    const float step = step_at(bytes.data() + at);
    if (!std::signbit(step) && !std::isinf(step)) return;
    if (std::isnan(step)) return;
    throw SyncError(SyncError::Kind::corrupt, "{} has a group with a step of {}", what, step);
  });
}

void read_byte_groups(std::span<const std::byte> bytes, std::span<float> to, const char* what) {
  check_byte_groups(bytes, to.size(), what);
  for_each_byte_group(to.size(), [&](std::size_t at, std::size_t first, std::size_t size) {
    const std::byte* from = bytes.data() + at;
    const float step = step_at(from);
    const int zero = std::to_integer<int>(from[sizeof step]);
    from += kByteGroupHead;
    for (std::size_t i = 0; i < size; ++i) {
      to[first + i] = static_cast<float>(std::to_integer<int>(from[i]) - zero) * step;
    }
  });
}

}  // namespace strait::sync
