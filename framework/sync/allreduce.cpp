#include "framework/sync/allreduce.h"

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {
namespace {

// Buckets are sized by what the owner sums.
constexpr int kSumBits = 32;
constexpr const char* kGradientPart = "a part of a gradient";

}  // namespace

std::optional<RoundPlan> Allreduce::plan(const HookPoint& point, const Layout& layout,
                                         const Membership& membership) const {
  if (point.hook != Hook::gradient) return std::nullopt;
  RoundPlan plan;
  if (in_group_) plan.pattern = Pattern::group;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), kSumBits));
  return plan;
}

void Allreduce::encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  append_floats(within(slots.values(kGradient), part.range), narrow_, out);
}

void Allreduce::reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
                       net::Frame& out) {
  std::vector<float> sum(static_cast<std::size_t>(part.range.count()));
  std::vector<float> theirs(sum.size());
  for (std::size_t member = 0; member < contributions.size(); ++member) {
    // In the order of the members and without a zero to begin with, as one replica with all rows
    // adds them: so the bits are those of that run.
    read_floats(contributions[member], narrow_, member == 0 ? sum : theirs, kGradientPart);
    if (member == 0) continue;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  append_floats(sum, narrow_, out);
}

void Allreduce::decode(const Round& round, const Part& part, const Slots&) {
  // The size alone: a value that is not finite must reach all replicas, which then skip the step.
  check_floats(round.exchanges.front().results[part.index],
               static_cast<std::size_t>(part.range.count()), narrow_, kGradientPart);
}

void Allreduce::apply(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& results = round.exchanges.front().results;
  const std::span<float> gradient = slots.values(kGradient);
  apply_parts(round, slots, [&](const Part& part) {
    read_floats(results[part.index], narrow_, within(gradient, part.range), kGradientPart);
  });
}

// Buckets are sized for float32 whatever the wire, as plan() sizes them.
Forecast Allreduce::forecast(const ForecastInput& input) {
  if (input.settings.in_group) return every_step(input.ready_bytes());
  const double bits = input.settings.narrow_wire ? kSumBits / 2 : kSumBits;
  return every_step(input.bucketed_bytes(input.values(), bits, input.bucket(kSumBits)));
}

CodingCost Allreduce::coding_cost(const SyncSettings&) { return kPlainCodingCost; }

}  // namespace strait::sync
