#include "framework/sync/cocktail.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "framework/sync/grid.h"
#include "framework/sync/slot_column.h"
#include "framework/sync/strength.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr auto kBlockSize = static_cast<std::size_t>(kGrain);
using BlockValues = std::array<float, kBlockSize>;

// Whether news of all coordinates is a few steps old, so that replicas train nearly as one.
bool hears_soon(const SyncSettings& settings) { return settings.random > 0.25; }

// Measured, see README.md: where replicas train on by themselves for some tens of steps before all
// have heard, agreements have to be taken further than they say; where all hear soon, they don't,
// and in a run that looks at each coordinate a few tens of times only, momentum comes too late.
OuterStep usual_outer_step(const SyncSettings& settings) {
  const bool gains = long_enough_for_momentum(settings.random, settings.steps);
  return hears_soon(settings) || !gains ? OuterStep{1, 0} : OuterStep{0.5F, 0.8F};
}

double checked_share(double share, const char* what) {
  if (share > 0 && share <= 1) return share;
  throw SyncError(
      SyncError::Kind::setting,
      fmt::format("cocktail: {} is {}; it has to be above 0 and at most 1", what, share));
}

int checked_bits(int bits) {
  if (bits >= 1 && bits <= 8) return bits;
  throw SyncError(SyncError::Kind::setting,
                  fmt::format("cocktail: bits are {}; they have to be from 1 to 8", bits));
}

// What no packet can say must not be made of any: it would be in the model of all replicas.
void check_magnitudes(const std::vector<Block>& blocks, std::span<const float> values,
                      const Layout& layout, const char* what) {
  std::int32_t most = 0;
  for (const float value : values) {
    most = std::max(most, std::bit_cast<std::int32_t>(std::abs(value)));
  }
  if (most < std::bit_cast<std::int32_t>(kMostMagnitude)) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) < kMostMagnitude) continue;
    const Block& block = blocks[i / kBlockSize];
    const Piece& piece = layout.pieces()[block.piece];
    throw SyncError(
        SyncError::Kind::corrupt,
        fmt::format("{} of {} is {} at its value {}", what, piece.spec.name, values[i],
                    block.first + static_cast<std::int64_t>(i % kBlockSize) - piece.range.first));
  }
}

// The block's values of what was sent, zero where nothing was; goes on to the next block.
class BlockReader {
 public:
  // From that block on, whose values begin there.
  BlockReader(const SparseValues& sent, std::size_t block, std::size_t value)
      : pattern_(sent.patterns.data() + block), value_(sent.values.data() + value) {}
  const BlockValues& next() {
    block_.fill(0);
    for (std::uint32_t rest = *pattern_++; rest != 0; rest &= rest - 1) {
      block_[static_cast<std::size_t>(std::countr_zero(rest))] = *value_++;
    }
    return block_;
  }

 private:
  const std::uint16_t* pattern_;
  const float* value_;
  BlockValues block_{};
};

// Blocks that one thread lands on its own: enough to be worth it, few enough for many threads.
constexpr std::size_t kStretch = 1024;

std::vector<std::size_t> stretches_of(const SparseValues& sent) {
  std::vector<std::size_t> begins;
  std::size_t values = 0;
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    if (b % kStretch == 0) begins.push_back(values);
    values += static_cast<std::size_t>(std::popcount(sent.patterns[b]));
  }
  return begins;
}

}  // namespace

Cocktail::Cocktail(const SyncSettings& settings)
    : choice_(settings.seed, checked_share(settings.random, "random")),
      packet_{checked_share(settings.top, "top"), checked_bits(settings.bits)},
      outer_(outer_step(settings, usual_outer_step(settings))),
      rule_(hears_soon(settings) ? UpdateRule::own_gradient : UpdateRule::adamw),
      narrow_(settings.narrow_reference) {}

std::vector<SlotNeed> Cocktail::slots() const {
  const auto width = narrow_ ? SlotNeed::Width::bfloat16 : SlotNeed::Width::float32;
  std::vector<SlotNeed> needs = {{kReference, width, true}, {kResidual, width, true}};
  if (outer_.momentum > 0) needs.push_back({kOuter, width, true, true});
  return needs;
}

void Cocktail::start(Slots& slots) {
  const std::span<float> weights = slots.values(kWeights);
  const Range all{0, slots.layout().size()};
  slots.store(kReference, all, weights);
  // Where the reference is narrow the run begins with what it could take.
  if (narrow_) slots.load(kReference, all, weights);
}

std::optional<RoundPlan> Cocktail::plan(const Moment& moment, const Layout& layout,
                                        const Membership&) const {
  if (moment.hook != Hook::update) return std::nullopt;
  RoundPlan plan;
  plan.late = 1;
  for (const Zone& zone : layout.zones()) plan.ranges.push_back(zone.range);
  return plan;
}

void Cocktail::tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) {
  parts_.resize(round.parts.size());
  PartUnderWay& under_way = parts_[part.index];
  under_way.owned = false;
  under_way.blocks = choice_.blocks(slots.layout(), part.range, round.opened.step);
  const std::vector<Block>& chosen = under_way.blocks;
  const std::span<const float> weights = slots.values(kWeights);
  SlotColumn reference(slots, kReference, narrow_);
  std::vector<float> change(chosen.size() * kBlockSize);
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    // Padding is zero in both.
    const float* own = weights.data() + chosen[b].first;
    const float* agreed = reference.block(chosen[b].first);
    float* to = change.data() + b * kBlockSize;
    for (std::size_t i = 0; i < kBlockSize; ++i) to[i] = own[i] - agreed[i];
  }
  check_magnitudes(chosen, change, slots.layout(), "the change since the last agreement");
  under_way.told = write_packet(chosen, change, packet_, out);
  under_way.told_at = stretches_of(under_way.told);
}

void Cocktail::fold(const Round& round, const Part& part, Told told, const Slots& slots,
                    net::Frame& out) {
  PartUnderWay& under_way = parts_[part.index];
  const std::vector<Block>& chosen = under_way.blocks;
  std::vector<float>& sum = under_way.left;
  sum.assign(chosen.size() * kBlockSize, 0);
  for (std::size_t member = 0; member < told.size(); ++member) {
    // What was told here is known without reading it again.
    const bool own = member == round.membership.mine;
    add_to(sum, own ? under_way.told : read_packet(chosen, told[member]));
  }
  SlotColumn residual(slots, kResidual, narrow_);
  const auto members = static_cast<float>(told.size());
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    const float* before = residual.block(chosen[b].first);
    float* values = sum.data() + b * kBlockSize;
    for (std::size_t i = 0; i < kBlockSize; ++i) values[i] = values[i] / members + before[i];
  }
  check_magnitudes(chosen, sum, slots.layout(), "the mean change");
  under_way.agreed = write_packet(chosen, sum, packet_, out);
  under_way.owned = true;
  BlockReader reader(under_way.agreed, 0, 0);
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    const BlockValues& block = reader.next();
    for (std::size_t i = 0; i < kBlockSize; ++i) sum[b * kBlockSize + i] -= block[i];
  }
}

void Cocktail::arrived(const Round& round, const Part& part, const Slots&) {
  PartUnderWay& under_way = parts_[part.index];
  if (!under_way.owned) {
    under_way.agreed = read_packet(under_way.blocks, round.exchanges.back().agreed[part.index]);
  }
  under_way.agreed_at = stretches_of(under_way.agreed);
}

void Cocktail::land(const Round&, Slots& slots) {
  struct Stretch {
    const PartUnderWay* part;
    std::size_t number;
  };
  std::vector<Stretch> stretches;
  for (const PartUnderWay& part : parts_) {
    for (std::size_t i = 0; i < part.agreed_at.size(); ++i) stretches.push_back({&part, i});
  }
  slots.spread(static_cast<std::int64_t>(stretches.size()),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   const Stretch& stretch = stretches[static_cast<std::size_t>(i)];
                   land_stretch(*stretch.part, stretch.number, slots);
                 }
               });
}

void Cocktail::land_stretch(const PartUnderWay& part, std::size_t stretch, Slots& slots) const {
  const std::span<float> weights = slots.values(kWeights);
  SlotColumn reference(slots, kReference, narrow_);
  SlotWriter new_reference(slots, kReference, narrow_);
  SlotWriter new_residual(slots, kResidual, narrow_);
  const bool remembers = outer_.momentum > 0;
  std::optional<SlotColumn> momentum;
  std::optional<SlotWriter> new_momentum;
  if (remembers) {
    momentum.emplace(slots, kOuter, narrow_);
    new_momentum.emplace(slots, kOuter, narrow_);
  }
  const std::size_t begin = stretch * kStretch;
  const std::size_t end = std::min(begin + kStretch, part.blocks.size());
  BlockReader mine(part.told, begin, part.told_at[stretch]);
  BlockReader all(part.agreed, begin, part.agreed_at[stretch]);
  BlockValues after{};
  BlockValues residual{};
  BlockValues outer{};
  for (std::size_t b = begin; b < end; ++b) {
    const std::int64_t first = part.blocks[b].first;
    const BlockValues& gives = mine.next();
    const BlockValues& takes = all.next();
    const float* before = reference.block(first);
    float* own = weights.data() + first;
    if (remembers) std::copy_n(momentum->block(first), kBlockSize, outer.begin());
    for (std::size_t i = 0; i < kBlockSize; ++i) {
      const float change = outer_.change(-takes[i], outer[i]);
      after[i] = new_reference.rounded(before[i] + change);
      const float moved = after[i] - before[i];
      own[i] += moved - gives[i];
      if (part.owned) residual[i] = part.left[b * kBlockSize + i] + (change - moved);
    }
    if (remembers) new_momentum->store(first, outer);
    new_reference.store(first, after);
    if (part.owned) new_residual.store(first, residual);
  }
}

}  // namespace strait::sync
