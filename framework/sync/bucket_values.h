#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "framework/sync/layout.h"

namespace strait::sync {

// Values of a bucket: a million, so that it leaves early and a link's chunks are filled; more where
// there are so many members that a part of it would be little more than the head of its frame.
// Whole grains, so that parts share no cache line.
inline std::int64_t bucket_values(std::size_t members, int bits) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  constexpr std::int64_t kPartBits = std::int64_t{1} << 18;  // 32 KiB
  const std::int64_t enough = static_cast<std::int64_t>(members) * kPartBits / bits;
  return (std::max(kLeast, enough) + kGrain - 1) / kGrain * kGrain;
}

}  // namespace strait::sync
