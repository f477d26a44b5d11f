#include "framework/net/fragment_size.h"

#include <algorithm>

#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

// Each fragment takes the path about this long. A frame is sent in several fragments, so that the
// times of their confirmations show the path's speed.
constexpr Seconds kFragment{0.01};
// Smaller fragments cost more than their confirmations are worth, unless they take kLongest.
constexpr std::uint64_t kUsualLeast = std::uint64_t{32} << 10;
// Well below kSilence: nothing else arrives while a fragment crosses a slow path.
constexpr Seconds kLongest{0.25};
// Fewer parts would not show a path that has become slow while the frame is sent.
constexpr std::uint64_t kParts = 3;
constexpr std::uint64_t kLeastPart = kUsualLeast / 2;

// Longer than a round trip, since within one round trip nothing is confirmed on a fast path either.
constexpr Seconds kInterval{0.5};
// A path that another link used for a moment is not slow, so the bound is loose.
constexpr double kFaster = 4;

}  // namespace

void FragmentSize::update(Time now, std::uint64_t sent, std::uint64_t confirmed) {
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

std::uint64_t FragmentSize::limit(double rate) const {
  const double bytes_per_second = std::min(rate, most_);
  const auto in = [bytes_per_second](Seconds time) {
    const double bytes = bytes_per_second * time.count();
    return static_cast<std::uint64_t>(std::min(bytes, static_cast<double>(kMaxFragmentBytes)));
  };
  return std::max(in(kFragment), std::clamp(in(kLongest), kLeast, kUsualLeast));
}

std::uint64_t FragmentSize::part_of(std::uint64_t frame_bytes) {
  return std::max(frame_bytes / kParts + 1, kLeastPart);
}

}  // namespace strait::net
