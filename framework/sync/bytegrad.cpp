#include "framework/sync/bytegrad.h"

#include "framework/sync/allreduce.h"
#include "framework/sync/bucket_values.h"
#include "framework/sync/byte_groups.h"
#include "framework/sync/land_parts.h"
#include "framework/sync/within.h"

namespace strait::sync {
namespace {

constexpr int kByteBits = 8;
constexpr const char* kBytePart = "a part of a gradient";

}  // namespace

std::optional<RoundPlan> ByteGrad::plan(const Moment& moment, const Layout& layout,
                                        const Membership& membership) const {
  if (moment.hook != Hook::gradient) return std::nullopt;
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), kByteBits));
  return plan;
}

void ByteGrad::tell(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  append_byte_groups(within(slots.values(kGradient), part.range), out);
}

void ByteGrad::fold(const Round&, const Part& part, Told told, const Slots&, net::Frame& out) {
  std::vector<float> sum(static_cast<std::size_t>(part.range.count()));
  std::vector<float> theirs(sum.size());
  for (const std::span<const std::byte> bytes : told) {
    read_byte_groups(bytes, theirs, kBytePart);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  append_byte_groups(sum, out);
}

void ByteGrad::arrived(const Round& round, const Part& part, const Slots&) {
  check_byte_groups(round.exchanges.front().agreed[part.index],
                    static_cast<std::size_t>(part.range.count()), kBytePart);
}

void ByteGrad::land(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& agreed = round.exchanges.front().agreed;
  const std::span<float> gradient = slots.values(kGradient);
  land_parts(round, slots, [&](const Part& part) {
    read_byte_groups(agreed[part.index], within(gradient, part.range), kBytePart);
  });
}

}  // namespace strait::sync
