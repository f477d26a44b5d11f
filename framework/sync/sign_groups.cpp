#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "framework/sync/group_codes.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// A value counts in its group's scale as this many spreads at most: about the longest step of AdamW
// with a second moment of 0.999. A larger value has a spread that is far too small, and must not
// make the steps of the others longer. (Measured: with 10, a sixteenth of a group that has almost
// no spread makes the others' steps seven times as long, with 3 twice; with 1 residuals are never
// paid off.)
constexpr double kMostCounted = 3;

std::size_t sign_group_size(std::size_t values) { return sizeof(float) + (values + 7) / 8; }

float sign_scale_at(const std::byte* group) {
  float scale = 0;
  std::memcpy(&scale, group, sizeof scale);
  return scale;
}

// Calls for every group with its offset in bytes, its first value and its size.
template <class Call>
void for_each_sign_group(std::size_t count, Call call) {
  for (std::size_t first = 0, at = 0; first < count; first += kSignGroup) {
    const std::size_t size = std::min(kSignGroup, count - first);
    call(at, first, size);
    at += sign_group_size(size);
  }
}

// The mean of |value| / spread, clipped.
float scale_of(std::span<const float> values, std::span<const float> spread) {
  // In lanes, so that a compiler can vectorise the sums; their order stays fixed.
  constexpr std::size_t kSumLanes = 8;
  std::array<double, kSumLanes> sums{};
  std::size_t count = 0;
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool moves = spread[i] > 0;
    finite &= std::isfinite(values[i]);
    const double by = moves ? static_cast<double>(spread[i]) : 1;
    const double value = std::min(static_cast<double>(std::abs(values[i])) / by, kMostCounted);
    sums[i % kSumLanes] += moves ? value : 0;
    count += moves ? 1 : 0;
  }
  if (!finite) return std::numeric_limits<float>::infinity();
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
}

}  // namespace

std::size_t sign_groups_size(std::size_t count) {
  const std::size_t rest = count % kSignGroup;
  return count / kSignGroup * sign_group_size(kSignGroup) + (rest > 0 ? sign_group_size(rest) : 0);
}

void append_sign_groups(std::span<const float> values, std::span<const float> spread,
                        net::Frame& out, const char* what) {
  const std::size_t begin = out.size();
  out.resize(begin + sign_groups_size(values.size()));
  for_each_sign_group(values.size(), [&](std::size_t at, std::size_t first, std::size_t size) {
    const std::span<const float> group = values.subspan(first, size);
    const float scale = scale_of(group, spread.subspan(first, size));
    if (!std::isfinite(scale)) {
      throw SyncError(SyncError::Kind::corrupt, "{} has values that are infinite or NaN", what);
    }
    std::byte* to = out.data() + begin + at;
    std::memcpy(to, &scale, sizeof scale);
    to += sizeof scale;
    for (std::size_t i = 0; i < size; i += 8) {
      unsigned signs = 0;
      for (std::size_t bit = 0; bit < 8 && i + bit < size; ++bit) {
        signs |= static_cast<unsigned>(group[i + bit] < 0) << bit;
      }
      *to++ = static_cast<std::byte>(signs);
    }
  });
}

void check_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                       const char* what) {
  const std::size_t count = spread.size();
  if (bytes.size() != sign_groups_size(count)) {
    throw SyncError(SyncError::Kind::corrupt, "{} has {} bytes; {} values take {}", what,
                    bytes.size(), count, sign_groups_size(count));
  }
  for_each_sign_group(count, [&](std::size_t at, std::size_t first, std::size_t size) {
    const float scale = sign_scale_at(bytes.data() + at);
    const float largest = *std::ranges::max_element(spread.subspan(first, size));
    if (std::isfinite(scale * largest) && std::isfinite(scale) && !std::signbit(scale)) return;
    throw SyncError(SyncError::Kind::corrupt, "{} has a group with a scale of {}", what, scale);
  });
}

void read_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                      std::span<float> to, const char* what) {
  check_sign_groups(bytes, spread, what);
  for_each_sign_group(to.size(), [&](std::size_t at, std::size_t first, std::size_t size) {
    const float scale = sign_scale_at(bytes.data() + at);
    const std::byte* signs = bytes.data() + at + sizeof scale;
    for (std::size_t i = 0; i < size; ++i) {
      // No branch: signs are unpredictable.
      const std::uint32_t sign = std::to_integer<std::uint32_t>(signs[i / 8]) >> (i % 8) << 31U;
      const float magnitude = scale * spread[first + i];
      to[first + i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
  });
}

}  // namespace strait::sync
