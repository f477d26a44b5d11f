#include "framework/sync/forecast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <string_view>

#include "framework/net/wire_format.h"
#include "framework/sync/bucket_values.h"
#include "framework/sync/byte_groups.h"
#include "framework/sync/diloco.h"
#include "framework/sync/noloco.h"
#include "framework/sync/onebit_adam.h"
#include "framework/sync/powersgd.h"
#include "framework/sync/round_message.h"
#include "framework/sync/sign_groups.h"
#include "framework/sync/streaming_diloco.h"
#include "framework/sync/symmetric_groups.h"

namespace strait::sync {
namespace {

constexpr double kFrameHead = kRoundMessageBytes + net::kHeaderBytes;
constexpr double kFloatBits = 32;
constexpr double kScaleBits = 16;

// The stage and the company, and how bytes of a code become bytes sent.
struct Case {
  const SyncSettings& settings;
  const Layout& layout;
  double members = 1;

  double values() const { return static_cast<double>(layout.size()); }
  double others() const { return members - 1; }
  double every(std::int64_t unless_set) const {
    return static_cast<double>(settings.every == 0 ? unless_set : settings.every);
  }
  // What everybody says once a round, that it holds all.
  double held() const { return others() * kFrameHead; }
  // To owners and back: each replica sends all but its own part, and its own part to all others.
  double reduced(double code_bytes, double ranges) const {
    return 2 * code_bytes * others() / members + 2 * others() * ranges * kFrameHead + held();
  }
  double reduced_values(double count, double bits, double bucket) const {
    return reduced(count * bits / 8, std::ceil(count / bucket));
  }
  double bucket(double bits) const {
    return static_cast<double>(
        bucket_values(static_cast<std::size_t>(members), static_cast<int>(bits)));
  }
};

Forecast every_step(double bytes) { return {.step_bytes = bytes, .round_bytes = bytes}; }

Forecast of_allreduce(const Case& of) {
  const double bits = of.settings.narrow_wire ? kFloatBits / 2 : kFloatBits;
  return every_step(of.reduced_values(of.values(), bits, of.bucket(kFloatBits)));
}

// The share of normal values' squares that a replica gets to say in one turn, where the largest
// are sent, a share `top` of all, as so many bits say them.
double heard_of_normal(double top, int bits) {
  // What is lost within a level, as a share of the spread of all levels: that of an exponential
  // whose levels are 4, 2, 1, … of its means wide (grid.h); one bit has no levels.
  constexpr std::array kLost = {1.0, 0.70, 0.28, 0.079, 0.021, 0.0, 0.0, 0.0};
  double below = 0;
  double above = 10;
  while (above - below > 1e-9) {
    const double middle = (below + above) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > top ? below : above) = middle;
  }
  const double density = std::exp(-below * below / 2) / std::sqrt(2 * std::numbers::pi);
  const double squares = top + 2 * below * density;
  const double square_of_mean = 4 * density * density / top;
  return squares - (squares - square_of_mean) * kLost[static_cast<std::size_t>(bits - 1)];
}

// Of positions, what a mask of so many ones takes; of values, what packets of normal changes have
// been seen to take.
Forecast of_cocktail(const Case& of) {
  constexpr std::array kValueBits = {1.0, 1.1, 1.8, 2.45, 3.5, 4.5, 5.5, 6.5};
  const double top = of.settings.top;
  const double mask = top < 1 ? -top * std::log2(top) - (1 - top) * std::log2(1 - top) : 0;
  const double value = kValueBits[static_cast<std::size_t>(of.settings.bits - 1)];
  double bits = 0;
  for (const Piece& piece : of.layout.pieces()) {
    bits += static_cast<double>(piece.range.count()) * (piece.dense() ? value : mask + top * value);
  }
  Forecast costs = every_step(
      of.reduced(of.settings.random * bits / 8, static_cast<double>(of.layout.zones().size())));
  // One step late, and half of the time it takes to come round to a coordinate. What was not among
  // the largest then waits for the next time, with replicas and once more with the part's owner.
  const double turn = 1 / of.settings.random;
  const double heard = heard_of_normal(top, of.settings.bits);
  costs.age = 1 + (turn - 1) / 2 + 2 * turn * (1 - heard) / heard;
  return costs;
}

Forecast of_diloco(const Case& of) {
  const double bits = of.settings.narrow_wire ? kFloatBits / 2 : kFloatBits;
  const double every = of.every(Diloco::kEvery);
  const double round = of.reduced_values(of.values(), bits, of.bucket(bits));
  return {.step_bytes = round / every, .round_bytes = round, .age = (every - 1) / 2};
}

Forecast of_streaming_diloco(const Case& of) {
  const double bits = of.settings.bits + kScaleBits / static_cast<double>(kSymmetricGroup);
  const auto fragments = static_cast<double>(of.settings.fragments);
  const double every = of.every(StreamingDiloco::kEvery);
  const auto stretches = static_cast<double>(StreamingDiloco::kStretches);
  const double stretch = of.values() / fragments / stretches;
  const double round = of.reduced(of.values() / fragments * bits / 8,
                                  stretches * std::ceil(stretch / of.bucket(of.settings.bits)));
  return {.step_bytes = round * fragments / every,
          .round_bytes = round,
          .age = (every - 1) / 2 + static_cast<double>(of.settings.late)};
}

Forecast of_noloco(const Case& of) {
  const double every = of.every(Noloco::kEvery);
  // One of an odd number goes on alone.
  const double paired = of.members - std::fmod(of.members, 2);
  const double frames = std::ceil(of.values() / of.bucket(kFloatBits)) + 1;
  const double round =
      paired / of.members * (2 * of.values() * kFloatBits / 8 + frames * kFrameHead);
  // Who hears of it doubles from round to round.
  const double rounds = std::ceil(std::log2(of.members));
  return {.step_bytes = round / every,
          .round_bytes = round,
          .age = (every - 1) / 2 + every * std::max(rounds - 1, 0.0)};
}

Forecast of_onebit_adam(const Case& of) {
  const double bits = 1 + kFloatBits / static_cast<double>(kSignGroup);
  const double warm = of.reduced_values(of.values(), kFloatBits, of.bucket(1));
  const double signs = of.reduced_values(of.values(), bits, of.bucket(1));
  const auto steps = static_cast<double>(of.settings.steps);
  const auto warmup = static_cast<double>(OnebitAdam::warmup(of.settings));
  const double share = steps > 0 ? std::min(warmup / steps, 1.0) : 0;
  return {.step_bytes = share * warm + (1 - share) * signs, .round_bytes = warm};
}

Forecast of_bytegrad(const Case& of) {
  constexpr double kBits = 8;
  constexpr double kHeadBits = kFloatBits + 8;
  const double bits = kBits + kHeadBits / static_cast<double>(kByteGroup);
  return every_step(of.reduced_values(of.values(), bits, of.bucket(kBits)));
}

Forecast of_powersgd(const Case& of) {
  double values = 0;
  for (const Piece& piece : of.layout.pieces()) {
    const LowRankShape shape(piece.spec, static_cast<std::size_t>(of.settings.rank));
    values += static_cast<double>(shape.left + shape.right);
  }
  // A piece is served whole: a frame to its owner and back, twice. Spread over all owners that is
  // as many frames as so many fewer ranges in shares would take.
  const double ranges = 2 * static_cast<double>(of.layout.pieces().size()) / of.members;
  return every_step(of.reduced(values * kFloatBits / 8, ranges));
}

// A method that is not known here, by what it plans: steps are looked at one by one, each value
// taken to travel in so many bits. What closes the run is no ordinary round, if there is another.
Forecast of_plans(const Case& of, const SyncMethod& method, double bits) {
  constexpr std::int64_t kStepsLookedAt = 512;
  Membership membership;
  for (std::uint32_t i = 0; i < of.members; ++i) membership.members.push_back(i);
  const std::int64_t steps = std::min(of.settings.steps, kStepsLookedAt);
  Forecast costs;
  double rounds = 0;
  double late = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update}) {
      const auto plan = method.plan({static_cast<store::Step>(step), hook}, of.layout, membership);
      if (!plan) continue;
      double bytes = 0;
      for (const Range& range : plan->ranges) {
        bytes += static_cast<double>(range.count()) * bits / 8;
      }
      const auto ranges = static_cast<double>(plan->ranges.size());
      const double one = plan->pattern == Pattern::shard_reduce ? of.reduced(bytes, ranges)
                         : plan->pattern == Pattern::gather_all
                             ? of.others() * (bytes + ranges * kFrameHead) + of.held()
                             : bytes + ranges * kFrameHead;
      const double round = one * static_cast<double>(plan->exchanges);
      costs.step_bytes += round / static_cast<double>(steps);
      if (rounds == 0 || step + 1 < of.settings.steps) {
        costs.round_bytes = std::max(costs.round_bytes, round);
        late = static_cast<double>(plan->late);
      }
      ++rounds;
    }
  }
  if (rounds > 0) costs.age = late + std::max(static_cast<double>(steps) / rounds - 1, 0.0) / 2;
  return costs;
}

struct Cost {
  std::string_view method;
  Forecast (*of)(const Case&);
};
constexpr std::array kCosts = {
    Cost{"allreduce", of_allreduce}, Cost{"cocktail", of_cocktail},
    Cost{"diloco", of_diloco},       Cost{"streaming_diloco", of_streaming_diloco},
    Cost{"noloco", of_noloco},       Cost{"onebit_adam", of_onebit_adam},
    Cost{"bytegrad", of_bytegrad},   Cost{"powersgd", of_powersgd},
};

}  // namespace

Forecast forecast(const SyncSettings& settings, const Layout& layout, std::size_t members) {
  const auto method = make_method(settings);
  const Case of{settings, layout, static_cast<double>(members)};
  const auto* known = std::ranges::find(kCosts, settings.method, &Cost::method);
  Forecast costs = known != kCosts.end()
                       ? known->of(of)
                       : of_plans(of, *method, methods().named(settings.method).wire_bits);
  for (const SlotNeed& need : method->slots()) {
    costs.slot_bytes += of.values() * (need.width == SlotNeed::Width::bfloat16 ? 2 : 4);
  }
  // As they were, until the step is agreed on: SlotsCopy.
  if (method->sums_gradients()) costs.slot_bytes *= 2;
  return costs;
}

}  // namespace strait::sync
