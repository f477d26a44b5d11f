#include "framework/net/chunk_size.h"

#include <algorithm>

#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

// A frame goes in several chunks, so that the times of their confirmations show how fast the path
// is: each takes the path about so long.
constexpr Seconds kChunk{0.01};
// Smaller ones cost more than their confirmations are worth, unless they take so long.
constexpr std::uint64_t kUsualLeast = std::uint64_t{32} << 10;
constexpr Seconds kLongest{0.25};
constexpr std::uint64_t kParts = 3;
constexpr std::uint64_t kLeastPart = kUsualLeast / 2;

// Longer than a round trip: within one nothing is confirmed on a fast path either.
constexpr Seconds kInterval{0.5};
// A path that was shared for a moment is not slow.
constexpr double kFaster = 4;

}  // namespace

void ChunkSize::update(Time now, std::uint64_t sent, std::uint64_t confirmed) {
  if (confirmed >= sent) {
    busy_ = false;
    most_ = std::numeric_limits<double>::infinity();
  } else if (!busy_) {
    busy_ = true;
    began_ = now;
    base_ = confirmed;
  } else if (const Seconds passed = now - began_; passed >= kInterval) {
    most_ = kFaster * static_cast<double>(confirmed - std::min(base_, confirmed)) / passed.count();
    began_ = now;
    base_ = confirmed;
  }
}

std::uint64_t ChunkSize::limit(double rate) const {
  const double bytes_per_second = std::min(rate, most_);
  const auto in = [bytes_per_second](Seconds time) {
    const double bytes = bytes_per_second * time.count();
    return static_cast<std::uint64_t>(std::min(bytes, static_cast<double>(kMaxChunkBytes)));
  };
  return std::max(in(kChunk), std::clamp(in(kLongest), kLeast, kUsualLeast));
}

std::uint64_t ChunkSize::part_of(std::uint64_t frame_bytes) {
  return std::max(frame_bytes / kParts + 1, kLeastPart);
}

}  // namespace strait::net
