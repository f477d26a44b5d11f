#include "framework/sync/bytegrad.h"

#include "framework/sync/group_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {
namespace {

constexpr int kByteBits = 8;
constexpr const char* kBytePart = "a part of a gradient";

}  // namespace

std::optional<RoundPlan> ByteGrad::plan(const HookPoint& point, const Layout& layout,
                                        const Membership& membership) const {
  if (point.hook != Hook::gradient) return std::nullopt;
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), kByteBits));
  return plan;
}

void ByteGrad::encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  append_byte_groups(within(slots.values(kGradient), part.range), out);
}

void ByteGrad::reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
                      net::Frame& out) {
  std::vector<float> sum(static_cast<std::size_t>(part.range.count()));
  std::vector<float> theirs(sum.size());
  for (const std::span<const std::byte> bytes : contributions) {
    read_byte_groups(bytes, theirs, kBytePart);
    // A NaN of one replica makes the sum NaN, so that all replicas skip the step.
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  append_byte_groups(sum, out);
}

void ByteGrad::decode(const Round& round, const Part& part, const Slots&) {
  check_byte_groups(round.exchanges.front().results[part.index],
                    static_cast<std::size_t>(part.range.count()), kBytePart);
}

void ByteGrad::apply(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& results = round.exchanges.front().results;
  const std::span<float> gradient = slots.values(kGradient);
  apply_parts(round, slots, [&](const Part& part) {
    read_byte_groups(results[part.index], within(gradient, part.range), kBytePart);
  });
}

Forecast ByteGrad::forecast(const ForecastInput& input) {
  // Per group: an f32 step and a u8 level.
  constexpr double kHeaderBits = 32 + 8;
  const double bits = kByteBits + kHeaderBits / static_cast<double>(kByteGroup);
  return every_step(input.bucketed_bytes(input.values(), bits, input.bucket(kByteBits)));
}

CodingCost ByteGrad::coding_cost(const SyncSettings&) { return {.engine = 10, .trainer = 0.9}; }

}  // namespace strait::sync
