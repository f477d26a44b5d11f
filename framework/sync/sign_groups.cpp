#include "framework/sync/group_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// Spreads for which a value counts at most: AdamW goes no further where its second moment is made
// with 0.999. What is more has a spread that is far too small for it, and must not make the others'
// steps longer. (Measured: 10 lets a sixteenth of a group that has hardly any spread make the
// others' steps seven times as long, 3 twice; 1 is too little for what is owed to be paid.)
constexpr double kMostCounted = 3;

std::size_t sign_group_size(std::size_t values) { return sizeof(float) + (values + 7) / 8; }

float sign_scale_at(const std::byte* group) {
  float scale = 0;
  std::memcpy(&scale, group, sizeof scale);
  return scale;
}

// Calls for every group with its bytes and its place among the values.
template <class Call>
void for_each_sign_group(std::size_t count, Call call) {
  for (std::size_t first = 0, at = 0; first < count; first += kSignGroup) {
    const std::size_t size = std::min(kSignGroup, count - first);
    call(at, first, size);
    at += sign_group_size(size);
  }
}

// The mean of |value| / spread, or of what of it counts.
float scale_of(std::span<const float> values, std::span<const float> spread) {
  // Lanes, so that a compiler may add several at a time, in one order all the same.
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  std::size_t count = 0;
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool moves = spread[i] > 0;
    finite &= std::isfinite(values[i]);
    const double by = moves ? static_cast<double>(spread[i]) : 1;
    const double value = std::min(static_cast<double>(std::abs(values[i])) / by, kMostCounted);
    sums[i % kLanes] += moves ? value : 0;
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
      throw SyncError(SyncError::Kind::corrupt,
                      fmt::format("{} holds values that are infinite or no numbers", what));
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
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("{} came in {} bytes where {} values take {}", what, bytes.size(),
                                count, sign_groups_size(count)));
  }
  for_each_sign_group(count, [&](std::size_t at, std::size_t first, std::size_t size) {
    const float scale = sign_scale_at(bytes.data() + at);
    const float largest = *std::ranges::max_element(spread.subspan(first, size));
    if (std::isfinite(scale * largest) && std::isfinite(scale) && !std::signbit(scale)) return;
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("{} came with a scale of {}", what, scale));
  });
}

void read_sign_groups(std::span<const std::byte> bytes, std::span<const float> spread,
                      std::span<float> to, const char* what) {
  check_sign_groups(bytes, spread, what);
  for_each_sign_group(to.size(), [&](std::size_t at, std::size_t first, std::size_t size) {
    const float scale = sign_scale_at(bytes.data() + at);
    const std::byte* signs = bytes.data() + at + sizeof scale;
    for (std::size_t i = 0; i < size; ++i) {
      // No branch: signs are as good as random.
      const std::uint32_t sign = std::to_integer<std::uint32_t>(signs[i / 8]) >> (i % 8) << 31U;
      const float magnitude = scale * spread[first + i];
      to[first + i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
  });
}

}  // namespace strait::sync
