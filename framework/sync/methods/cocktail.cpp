#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "framework/sync/block_models.h"
#include "framework/sync/grid.h"
#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/packet.h"
#include "framework/sync/random_choice.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr const char* kResidual = "residual";
constexpr auto kBlockSize = static_cast<std::size_t>(kGrain);
using BlockValues = std::array<float, kBlockSize>;

// Whether the results of all coordinates are at most a few steps old, so that replicas train nearly
// as one.
bool is_fresh(const SyncSettings& settings) { return settings.random > 0.25; }

double checked_share(const SyncSettings& settings, double share, const char* what) {
  if (share > 0 && share <= 1) return share;
  throw SyncError(SyncError::Kind::setting, "{}: {} is {}; it must be above 0 and at most 1",
                  settings.method, what, share);
}

int checked_bits(const SyncSettings& settings) {
  if (settings.bits >= 1 && settings.bits <= 8) return settings.bits;
  throw SyncError(SyncError::Kind::setting, "{}: bits is {}; it must be from 1 to 8",
                  settings.method, settings.bits);
}

// A value that no packet can hold must not be encoded: it would enter the model of all replicas.
[[noreturn]] void refuse_magnitudes(const std::vector<Block>& blocks, std::span<const float> values,
                                    const Layout& layout, const char* what) {
  std::size_t i = 0;
  while (std::abs(values[i]) < kMostMagnitude) ++i;
  const Block& block = blocks[i / kBlockSize];
  const Piece& piece = layout.pieces()[block.piece];
  throw SyncError(SyncError::Kind::corrupt, "{} of {} is {} at index {}", what, piece.spec.name,
                  values[i],
                  block.first + static_cast<std::int64_t>(i % kBlockSize) - piece.range.first);
}

// The highest bit is set for a magnitude of kMostMagnitude or more, and for NaN. Integer
// arithmetic, so that a loop over blocks ORs the bits and has no branch.
std::uint32_t excess(float value) {
  constexpr std::uint32_t kSign = 1U << 31U;
  return (std::bit_cast<std::uint32_t>(value) & ~kSign) +
         (kSign - std::bit_cast<std::uint32_t>(kMostMagnitude));
}

bool exceeds(std::uint32_t excess) { return excess >> 31U != 0; }

// Distance of prefetches, in blocks: the drawn blocks are scattered, so the processor cannot
// predict them.
constexpr std::size_t kAhead = 32;

// The sent values of one block after the other, zero where nothing was sent.
class BlockReader {
 public:
  // Begins at this block, whose first value this is.
  BlockReader(const SparseValues& sent, std::size_t block, std::size_t value)
      : pattern_(sent.patterns.data() + block), value_(sent.values.data() + value) {}
  // Valid until the next call.
  const float* next() {
    const std::uint16_t pattern = *pattern_++;
    if (pattern == kWholePattern) {
      const float* all = value_;
      value_ += kBlockSize;
      return all;
    }
    block_.fill(0);
    for (std::uint32_t rest = pattern; rest != 0; rest &= rest - 1) {
      block_[static_cast<std::size_t>(std::countr_zero(rest))] = *value_++;
    }
    return block_.data();
  }

 private:
  const std::uint16_t* pattern_;
  const float* value_;
  BlockValues block_{};
};

// Blocks that one thread applies at a time: enough to be worth the call, few enough to balance many
// threads.
constexpr std::size_t kStretch = 1024;

void find_stretches(const SparseValues& sent, std::vector<std::size_t>& begins) {
  begins.clear();
  std::size_t values = 0;
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    if (b % kStretch == 0) begins.push_back(values);
    values += values_in(sent.patterns[b]);
  }
}

// Whether a run covers each coordinate often enough for an outer step with momentum to gain.
// steps 0: unknown; taken for a long run.
bool long_enough_for_momentum(double random, std::int64_t steps) {
  constexpr double kTurns = 100;
  return steps == 0 || random * static_cast<double>(steps) >= kTurns;
}

// Measured, see tests/bench/RESULTS.md: if replicas train alone for some tens of steps before all
// have a change, the outer step has to go further than the results; if results are fresh it does
// harm, and in a run that covers each coordinate a few tens of times only, momentum comes too late.
OuterStep usual_outer_step(const SyncSettings& settings) {
  const bool gains = long_enough_for_momentum(settings.random, settings.steps);
  return is_fresh(settings) || !gains ? OuterStep{1, 0} : OuterStep{0.5F, 0.8F};
}

OuterStep cocktail_outer_step(const SyncSettings& settings) {
  return outer_step(settings, usual_outer_step(settings));
}

std::vector<SlotNeed> cocktail_slots(const SyncSettings& settings) {
  std::vector<SlotNeed> needs = {{.name = kReference}, {.name = kResidual}};
  if (cocktail_outer_step(settings).momentum > 0) {
    needs.push_back({.name = kOuter, .shared = true, .optional = true});
  }
  return needs;
}

// CocktailSGD: sparse, compressed model averaging, one step late. Every replica trains on its own
// weights and contributes, after each update, their change since the shared reference: at random
// coordinates, the largest, in a few bits. The owner of a part takes the mean, adds what its
// earlier results left out (its residual) and encodes as much of that as fits. Before the next
// update, the result is added to reference and weights, and the replica's own contribution is
// subtracted from its weights. So nothing is lost: what was not sent is still in weights -
// reference, what the result left out is in the residual, and mean(weights) + residual moves as the
// uncompressed mean would. What rounding to float32 takes from the reference goes back into the
// residual, divided by the gain of the outer step.
//
// An outer step with momentum applies the result, and may move the reference further than the
// result: that makes up for the staleness of the replicas. mean(weights) + residual then moves by
// that difference, too, which is the same on all replicas.
//
// The trained model is the reference.
class Cocktail final : public SyncMethod {
 public:
  // SyncError (setting) for a share that is not above 0 and at most 1, or bits that are not 1 to 8.
  explicit Cocktail(const SyncSettings& settings)
      : SyncMethod({.slots = cocktail_slots(settings),
                    .trainer_slots = {kWeights},
                    .model_slot = kReference,
                    .trains_apart = true,
                    .reads_own_contribution = false}),
        choice_(settings.seed, checked_share(settings, settings.random, "random")),
        packet_{checked_share(settings, settings.top, "top"), checked_bits(settings)},
        rows_(settings.rows),
        outer_(cocktail_outer_step(settings)),
        rule_(is_fresh(settings) ? UpdateRule::own_gradient : UpdateRule::adamw) {}

  // Where results are a few steps old, replicas step like one that sees all rows, at the learning
  // rate of that one. Where they are older, the shorter steps of a replica's own rows lose less.
  UpdateRule update_rule(store::Step) const override { return rule_; }
  void start(Slots& slots) override {
    std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
  }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership&) const override {
    if (point.hook != Hook::update) return std::nullopt;
    RoundPlan plan;
    plan.late = 1;
    for (const Zone& zone : layout.zones()) plan.ranges.push_back(zone.range);
    return plan;
  }
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override {
    parts_.resize(round.parts.size());
    PartInProgress& in_progress = parts_[part.index];
    in_progress.owned = false;
    in_progress.blocks = choice_.blocks(slots.layout(), part.range, round.opened.step);
    const std::vector<Block>& chosen = in_progress.blocks;
    const std::span<const float> weights = slots.values(kWeights);
    const std::span<const float> reference = slots.values(kReference);
    change_.resize(chosen.size() * kBlockSize);
    std::uint32_t most = 0;
    for (std::size_t b = 0; b < chosen.size(); ++b) {
      const std::int64_t ahead = chosen[std::min(b + kAhead, chosen.size() - 1)].first;
      __builtin_prefetch(weights.data() + ahead);
      __builtin_prefetch(reference.data() + ahead);
      // Padding is zero in both slots.
      const float* own = weights.data() + chosen[b].first;
      const float* shared = reference.data() + chosen[b].first;
      BlockValues change;
      for (std::size_t i = 0; i < kBlockSize; ++i) change[i] = own[i] - shared[i];
      for (std::size_t i = 0; i < kBlockSize; ++i) most |= excess(change[i]);
      std::ranges::copy(change, change_.data() + b * kBlockSize);
    }
    if (exceeds(most)) {
      refuse_magnitudes(chosen, change_, slots.layout(), "the change since the last sync");
    }
    write_packet(chosen, change_, packet_, scratch_, out, in_progress.contribution);
    find_stretches(in_progress.contribution, in_progress.contribution_at);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override {
    PartInProgress& in_progress = parts_[part.index];
    const std::vector<Block>& chosen = in_progress.blocks;
    std::vector<float>& sum = in_progress.residual;
    sum.assign(chosen.size() * kBlockSize, 0);
    const std::vector<float> shares = shares_of(rows_, round.membership);
    for (std::size_t member = 0; member < contributions.size(); ++member) {
      // encode() left the own contribution in decoded form.
      const bool own = member == round.membership.mine;
      if (!own) read_packet(chosen, contributions[member], scratch_, received_);
      add_to(sum, own ? in_progress.contribution : received_,
             shares.empty() ? 1.0F : shares[member]);
    }
    const std::span<const float> residual = slots.values(kResidual);
    const auto members = static_cast<float>(shares.empty() ? contributions.size() : 1);
    std::uint32_t most = 0;
    for (std::size_t b = 0; b < chosen.size(); ++b) {
      const std::int64_t ahead = chosen[std::min(b + kAhead, chosen.size() - 1)].first;
      __builtin_prefetch(residual.data() + ahead);
      const float* before = residual.data() + chosen[b].first;
      float* values = sum.data() + b * kBlockSize;
      BlockValues mean;
      for (std::size_t i = 0; i < kBlockSize; ++i) mean[i] = values[i] / members + before[i];
      for (std::size_t i = 0; i < kBlockSize; ++i) most |= excess(mean[i]);
      std::ranges::copy(mean, values);
    }
    if (exceeds(most)) refuse_magnitudes(chosen, sum, slots.layout(), "the mean change");
    write_packet(chosen, sum, packet_, scratch_, out, in_progress.result);
    in_progress.owned = true;
    BlockReader reader(in_progress.result, 0, 0);
    for (std::size_t b = 0; b < chosen.size(); ++b) {
      const float* sent = reader.next();
      for (std::size_t i = 0; i < kBlockSize; ++i) sum[b * kBlockSize + i] -= sent[i];
    }
  }
  void decode(const Round& round, const Part& part, const Slots&) override {
    PartInProgress& in_progress = parts_[part.index];
    if (!in_progress.owned) {
      read_packet(in_progress.blocks, round.exchanges.back().results[part.index], scratch_,
                  in_progress.result);
    }
    find_stretches(in_progress.result, in_progress.result_at);
  }
  void apply(const Round&, Slots& slots) override {
    struct Stretch {
      const PartInProgress* part;
      std::size_t number;
    };
    std::vector<Stretch> stretches;
    for (const PartInProgress& part : parts_) {
      for (std::size_t i = 0; i < part.result_at.size(); ++i) stretches.push_back({&part, i});
    }
    slots.spread(static_cast<std::int64_t>(stretches.size()),
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t i = first; i < last; ++i) {
                     const Stretch& stretch = stretches[static_cast<std::size_t>(i)];
                     apply_stretch(*stretch.part, stretch.number, slots);
                   }
                 });
  }

 private:
  // A part of the current round: what encode, reduce and decode leave for apply.
  struct PartInProgress {
    std::vector<Block> blocks;
    SparseValues contribution;  // of this replica, as others read it
    SparseValues result;
    bool owned = false;           // reduced here; `residual` is set
    std::vector<float> residual;  // of the blocks' values: what the result leaves out
    // Where the values of each stretch of blocks begin, in `contribution` and in `result`.
    std::vector<std::size_t> contribution_at;
    std::vector<std::size_t> result_at;
  };

  void apply_stretch(const PartInProgress& part, std::size_t stretch, Slots& slots) const {
    const std::span<float> weights = slots.values(kWeights);
    const std::span<float> reference = slots.values(kReference);
    const std::span<float> new_residual = slots.values(kResidual);
    const bool has_momentum = outer_.momentum > 0;
    const std::span<float> momentum = has_momentum ? slots.values(kOuter) : std::span<float>();
    // What goes into the residual passes the outer step once more, so it is divided by its gain.
    const float back = 1 / outer_.gain();
    const std::size_t begin = stretch * kStretch;
    const std::size_t end = std::min(begin + kStretch, part.blocks.size());
    BlockReader mine(part.contribution, begin, part.contribution_at[stretch]);
    BlockReader all(part.result, begin, part.result_at[stretch]);
    BlockValues after{};
    BlockValues residual{};
    BlockValues outer{};
    for (std::size_t b = begin; b < end; ++b) {
      const std::int64_t ahead = part.blocks[std::min(b + kAhead, end - 1)].first;
      __builtin_prefetch(weights.data() + ahead, 1);
      __builtin_prefetch(reference.data() + ahead, 1);
      if (has_momentum) __builtin_prefetch(momentum.data() + ahead, 1);
      const std::int64_t first = part.blocks[b].first;
      const float* gives = mine.next();
      const float* takes = all.next();
      const float* before = reference.data() + first;
      float* own = weights.data() + first;
      if (has_momentum) std::copy_n(momentum.data() + first, kBlockSize, outer.data());
      for (std::size_t i = 0; i < kBlockSize; ++i) {
        const float change = outer_.change(-takes[i], outer[i]);
        after[i] = before[i] + change;
        const float moved = after[i] - before[i];
        own[i] += moved - gives[i];
        residual[i] = (change - moved) * back;
      }
      if (has_momentum) std::ranges::copy(outer, momentum.data() + first);
      std::ranges::copy(after, reference.data() + first);
      if (!part.owned) continue;
      for (std::size_t i = 0; i < kBlockSize; ++i) residual[i] += part.residual[b * kBlockSize + i];
      std::ranges::copy(residual, new_residual.data() + first);
    }
  }

  RandomChoice choice_;
  PacketSettings packet_;
  std::vector<std::int64_t> rows_;
  OuterStep outer_;
  UpdateRule rule_;
  std::vector<PartInProgress> parts_;  // by Part::index
  // Scratch memory, kept from round to round.
  PacketScratch scratch_;
  std::vector<float> change_;
  SparseValues received_;
};

// Of normally distributed values: the share of their squares that one turn transmits, if the
// largest, a share `top` of all, are sent in `bits` bits.
double transmitted_of_normal(double top, int bits) {
  // The loss within a level, as a share of the spread of all levels: that of an exponential whose
  // levels are 4, 2, 1, … of its means wide (grid.h). One bit has no levels.
  constexpr std::array kLost = {1.0, 0.70, 0.28, 0.079, 0.021, 0.0, 0.0, 0.0};
  // The threshold that a share `top` of the magnitudes exceeds, by bisection.
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

// Positions take the entropy of a mask with that share of ones; values take what packets of normal
// changes were measured to take.
Forecast cocktail_forecast(const ForecastInput& input) {
  constexpr std::array kValueBits = {1.0, 1.1, 1.8, 2.45, 3.5, 4.5, 5.5, 6.5};
  const SyncSettings& settings = input.settings;
  const double top = settings.top;
  const double mask = top < 1 ? -top * std::log2(top) - (1 - top) * std::log2(1 - top) : 0;
  const double value = kValueBits[static_cast<std::size_t>(settings.bits - 1)];
  double bits = 0;
  for (const Piece& piece : input.layout.pieces()) {
    bits += static_cast<double>(piece.range.count()) * (piece.dense() ? value : mask + top * value);
  }
  Forecast costs = every_step(input.shard_reduce_bytes(
      settings.random * bits / 8, static_cast<double>(input.layout.zones().size())));
  // One step late, and half of the time until a coordinate is drawn again. What was not among the
  // largest then waits for the next turn, at the replicas and once more at the part's owner.
  const double turn = 1 / settings.random;
  const double transmitted = transmitted_of_normal(top, settings.bits);
  costs.staleness = 1 + (turn - 1) / 2 + 2 * turn * (1 - transmitted) / transmitted;
  return costs;
}

// See MethodOffer::strengths. Each sends fewer bytes than the one before it and is staler; of
// several that send as much, the one that costs least loss (tests/bench/RESULTS.md). In a run
// that is long enough for momentum, none that loses more than one that sends less.
std::span<const Strength> cocktail_strengths(std::int64_t steps) {
  static constexpr Strength kFresh{0.5, 0.5, 4};
  // Below a quarter of the coordinates, signs of all transmit more for their bytes than the largest
  // values do.
  static constexpr std::array kInLongRuns = {kFresh, Strength{0.12, 1, 1}, Strength{0.08, 1, 1}};
  static constexpr std::array kInShortRuns = {kFresh, Strength{0.25, 0.35, 4}, Strength{0.25, 1, 1},
                                              Strength{0.12, 1, 1}, Strength{0.08, 1, 1}};
  constexpr double kBestWithMomentum = 0.12;
  if (long_enough_for_momentum(kBestWithMomentum, steps)) return kInLongRuns;
  return kInShortRuns;
}

}  // namespace

MethodOffer cocktail() {
  return {.name = "cocktail",
          .make = made<Cocktail>,
          .reads = {"random", "top", "bits", "outer_learning_rate", "outer_momentum"},
          .weighs_rows = true,
          .forecast = cocktail_forecast,
          // By coordinates that a round covers. Selecting takes most of the time, so it matters
          // little how many are sent; bare signs need no levels.
          .coding_cost =
              [](const SyncSettings& settings) {
                return CodingCost{settings.random * (settings.bits == 1 ? 50 : 72),
                                  settings.random * 30};
              },
          .strengths = cocktail_strengths,
          .rank = 40};
}

}  // namespace strait::sync
