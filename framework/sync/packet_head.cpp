#include "framework/sync/packet_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::uint32_t kFormat = 2;
constexpr double kShares = 255;

}  // namespace

PacketHead PacketHead::of(int bits, double share, float least, double mean) {
  PacketHead head;
  head.bits = bits;
  if (least == 0) return head;
  head.share = static_cast<std::uint32_t>(std::lround(kShares * share));
  head.threshold = threshold_below(least);
  head.step = step_of(step_code(step_above(head.threshold, mean, bits)));
  return head;
}

double PacketHead::guess() const { return std::clamp(share / kShares, 0.004, 0.996); }

void append_packet_head(const PacketHead& head, net::Frame& out) {
  const std::uint32_t threshold = std::bit_cast<std::uint32_t>(head.threshold) >> 16U;
  const std::uint32_t step = step_code(head.step);
  for (const std::uint32_t byte : {kFormat << 4U | static_cast<std::uint32_t>(head.bits),
                                   head.share, threshold, threshold >> 8U, step, step >> 8U}) {
    out.push_back(std::byte(byte));
  }
}

PacketHead read_packet_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kPacketHeadBytes) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a packet of {} bytes is shorter than its head", bytes.size()));
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(bytes[at]); };
  PacketHead head;
  head.bits = static_cast<int>(byte(0) & 15U);
  head.share = byte(1);
  head.threshold = std::bit_cast<float>((byte(2) | byte(3) << 8U) << 16U);
  const std::uint32_t step = byte(4) | byte(5) << 8U;
  const bool silent =
      head.threshold == 0 && step == 0 && head.share == 0 && !std::signbit(head.threshold);
  if (step < kStepCodes) head.step = step_of(step);
  if (byte(0) >> 4U != kFormat || head.bits < 1 || head.bits > 8 || step >= kStepCodes ||
      !step_is_sound(head.step) || !(silent || threshold_is_sound(head.threshold))) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a packet's head names a format, a threshold or a step that there is not");
  }
  return head;
}

}  // namespace strait::sync
