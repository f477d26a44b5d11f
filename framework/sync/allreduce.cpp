#include "framework/sync/allreduce.h"

#include <algorithm>

#include "framework/sync/bucket_values.h"
#include "framework/sync/float_bytes.h"
#include "framework/sync/land_parts.h"
#include "framework/sync/within.h"

namespace strait::sync {
namespace {

constexpr int kBitsOfASum = 32;
constexpr const char* kPart = "a part of a gradient";

}  // namespace

std::vector<Range> buckets_of(const Layout& layout, std::int64_t values) {
  std::vector<Range> buckets;
  for (const Zone& zone : layout.zones()) {
    for (std::int64_t first = zone.range.first; first < zone.range.last; first += values) {
      buckets.push_back({first, std::min(first + values, zone.range.last)});
    }
  }
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::optional<RoundPlan> Allreduce::plan(const Moment& moment, const Layout& layout,
                                         const Membership& membership) const {
  if (moment.hook != Hook::gradient) return std::nullopt;
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), kBitsOfASum));
  return plan;
}

void Allreduce::tell(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  append_floats(within(slots.values(kGradient), part.range), narrow_, out);
}

void Allreduce::fold(const Round&, const Part& part, Told told, const Slots&, net::Frame& out) {
  std::vector<float> sum(static_cast<std::size_t>(part.range.count()));
  std::vector<float> theirs(sum.size());
  for (std::size_t member = 0; member < told.size(); ++member) {
    read_floats(told[member], narrow_, member == 0 ? sum : theirs, kPart);
    if (member == 0) continue;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  append_floats(sum, narrow_, out);
}

void Allreduce::arrived(const Round& round, const Part& part, const Slots&) {
  check_floats(round.exchanges.front().agreed[part.index],
               static_cast<std::size_t>(part.range.count()), narrow_, kPart);
}

void Allreduce::land(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& agreed = round.exchanges.front().agreed;
  const std::span<float> gradient = slots.values(kGradient);
  land_parts(round, slots, [&](const Part& part) {
    read_floats(agreed[part.index], narrow_, within(gradient, part.range), kPart);
  });
}

}  // namespace strait::sync
