#include "framework/sync/bytegrad.h"

#include "framework/sync/allreduce.h"
#include "framework/sync/bucket_values.h"
#include "framework/sync/byte_groups.h"
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

void ByteGrad::land(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& agreed = round.exchanges.front().agreed;
  for (const Part& part : round.parts) {
    check_byte_groups(agreed[part.index], static_cast<std::size_t>(part.range.count()), kBytePart);
  }
  for (const Part& part : round.parts) {
    read_byte_groups(agreed[part.index], within(slots.values(kGradient), part.range), kBytePart);
  }
}

}  // namespace strait::sync
