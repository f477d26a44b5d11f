#include "framework/sync/cocktail.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "framework/sync/block_pattern.h"
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
[[noreturn]] void refuse_magnitudes(const std::vector<Block>& blocks, std::span<const float> values,
                                    const Layout& layout, const char* what) {
  std::size_t i = 0;
  while (std::abs(values[i]) < kMostMagnitude) ++i;
  const Block& block = blocks[i / kBlockSize];
  const Piece& piece = layout.pieces()[block.piece];
  throw SyncError(
      SyncError::Kind::corrupt,
      fmt::format("{} of {} is {} at its value {}", what, piece.spec.name, values[i],
                  block.first + static_cast<std::int64_t>(i % kBlockSize) - piece.range.first));
}

// Its highest bit is set where the magnitude is kMostMagnitude or more, or there is none.
std::uint32_t excess(float value) {
  constexpr std::uint32_t kSign = 1U << 31U;
  return (std::bit_cast<std::uint32_t>(value) & ~kSign) +
         (kSign - std::bit_cast<std::uint32_t>(kMostMagnitude));
}

bool exceeds(std::uint32_t excess) { return excess >> 31U != 0; }

// Blocks ahead that are fetched into the cache: they lie here and there.
constexpr std::size_t kAhead = 32;

// The block's values of what was sent, zero where nothing was; goes on to the next block.
class BlockReader {
 public:
  // From that block on, whose values begin there.
  BlockReader(const SparseValues& sent, std::size_t block, std::size_t value)
      : pattern_(sent.patterns.data() + block), value_(sent.values.data() + value) {}
  // Good until the next call.
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

// Blocks that one thread lands on its own: enough to be worth it, few enough for many threads.
constexpr std::size_t kStretch = 1024;

void find_stretches(const SparseValues& sent, std::vector<std::size_t>& begins) {
  begins.clear();
  std::size_t values = 0;
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    if (b % kStretch == 0) begins.push_back(values);
    values += values_in(sent.patterns[b]);
  }
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
  change_.resize(chosen.size() * kBlockSize);
  std::uint32_t most = 0;
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    const std::int64_t ahead = chosen[std::min(b + kAhead, chosen.size() - 1)].first;
    __builtin_prefetch(weights.data() + ahead);
    reference.prefetch(ahead);
    // Padding is zero in both.
    const float* own = weights.data() + chosen[b].first;
    const float* agreed = reference.block(chosen[b].first);
    BlockValues change;
    for (std::size_t i = 0; i < kBlockSize; ++i) change[i] = own[i] - agreed[i];
    for (std::size_t i = 0; i < kBlockSize; ++i) most |= excess(change[i]);
    std::ranges::copy(change, change_.data() + b * kBlockSize);
  }
  if (exceeds(most)) {
    refuse_magnitudes(chosen, change_, slots.layout(), "the change since the last agreement");
  }
  write_packet(chosen, change_, packet_, room_, out, under_way.told);
  find_stretches(under_way.told, under_way.told_at);
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
    if (!own) read_packet(chosen, told[member], room_, theirs_);
    add_to(sum, own ? under_way.told : theirs_);
  }
  SlotColumn residual(slots, kResidual, narrow_);
  const auto members = static_cast<float>(told.size());
  std::uint32_t most = 0;
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    residual.prefetch(chosen[std::min(b + kAhead, chosen.size() - 1)].first);
    const float* before = residual.block(chosen[b].first);
    float* values = sum.data() + b * kBlockSize;
    BlockValues mean;
    for (std::size_t i = 0; i < kBlockSize; ++i) mean[i] = values[i] / members + before[i];
    for (std::size_t i = 0; i < kBlockSize; ++i) most |= excess(mean[i]);
    std::ranges::copy(mean, values);
  }
  if (exceeds(most)) refuse_magnitudes(chosen, sum, slots.layout(), "the mean change");
  write_packet(chosen, sum, packet_, room_, out, under_way.agreed);
  under_way.owned = true;
  BlockReader reader(under_way.agreed, 0, 0);
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    const float* said = reader.next();
    for (std::size_t i = 0; i < kBlockSize; ++i) sum[b * kBlockSize + i] -= said[i];
  }
}

void Cocktail::arrived(const Round& round, const Part& part, const Slots&) {
  PartUnderWay& under_way = parts_[part.index];
  if (!under_way.owned) {
    read_packet(under_way.blocks, round.exchanges.back().agreed[part.index], room_,
                under_way.agreed);
  }
  find_stretches(under_way.agreed, under_way.agreed_at);
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
  // What goes into the residual goes through the outer step once more.
  const float back = 1 / outer_.gain();
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
    const std::int64_t ahead = part.blocks[std::min(b + kAhead, end - 1)].first;
    __builtin_prefetch(weights.data() + ahead, 1);
    reference.prefetch(ahead);
    if (remembers) momentum->prefetch(ahead);
    const std::int64_t first = part.blocks[b].first;
    const float* gives = mine.next();
    const float* takes = all.next();
    const float* before = reference.block(first);
    float* own = weights.data() + first;
    if (remembers) {
      const float* remembered = momentum->block(first);
      for (std::size_t i = 0; i < kBlockSize; ++i) outer[i] = remembered[i];
    }
    for (std::size_t i = 0; i < kBlockSize; ++i) {
      const float change = outer_.change(-takes[i], outer[i]);
      after[i] = new_reference.rounded(before[i] + change);
      const float moved = after[i] - before[i];
      own[i] += moved - gives[i];
      residual[i] = (change - moved) * back;
    }
    if (remembers) new_momentum->store(first, outer);
    new_reference.store(first, after);
    if (!part.owned) continue;
    for (std::size_t i = 0; i < kBlockSize; ++i) residual[i] += part.left[b * kBlockSize + i];
    new_residual.store(first, residual);
  }
}

}  // namespace strait::sync
