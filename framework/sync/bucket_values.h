#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace strait::sync {

// Values of a bucket: a million, so that it leaves early and a link's chunks are filled; more where
// there are so many members that a part of it would be little more than the head of its frame.
inline std::int64_t bucket_values(std::size_t members, int bits) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  constexpr std::int64_t kPartBits = std::int64_t{1} << 18;  // 32 KiB
  return std::max(kLeast, static_cast<std::int64_t>(members) * kPartBits / bits);
}

}  // namespace strait::sync
