#include "framework/sync/random_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace strait::sync {
namespace {

// Blocks are drawn from strata of this size, each shuffled on its own: so a step draws the same
// share everywhere, and its cost is that of the drawn blocks, not of all.
constexpr std::uint64_t kStratum = 256;
constexpr double kMillion = 1e6;

// A keyed permutation of 0 .. kStratum - 1: each round multiplies by an odd number, adds, and XORs
// the upper bits into the lower. Each of these is invertible, so no two numbers collide.
class Shuffle {
 public:
  explicit Shuffle(std::uint64_t key) {
    for (Round& round : rounds_) {
      round.factor = static_cast<std::uint8_t>(key | 1U);
      round.add = static_cast<std::uint8_t>(key >> 8U);
      key >>= 16U;
    }
  }
  std::uint64_t operator()(std::uint64_t number) const {
    for (const Round& round : rounds_) {
      number = (number * round.factor + round.add) % kStratum;
      number ^= number >> 4U;
    }
    return number;
  }

 private:
  struct Round {
    std::uint8_t factor = 1;
    std::uint8_t add = 0;
  };
  std::array<Round, 4> rounds_{};
};

const Zone& zone_of(const Layout& layout, std::int64_t coordinate) {
  const auto& zones = layout.zones();
  const auto after = std::upper_bound(
      zones.begin(), zones.end(), coordinate,
      [](std::int64_t value, const Zone& zone) { return value < zone.range.first; });
  return *(after - 1);
}

// Names the pieces of ascending coordinates.
class PieceFinder {
 public:
  PieceFinder(const std::vector<Piece>& pieces, std::int64_t coordinate) : pieces_(pieces) {
    const auto after = std::upper_bound(
        pieces.begin(), pieces.end(), coordinate,
        [](std::int64_t value, const Piece& piece) { return value < piece.range.first; });
    at_ = static_cast<std::size_t>(after - pieces.begin()) - 1;
  }
  Block block(std::int64_t first) {
    while (at_ + 1 < pieces_.size() && pieces_[at_ + 1].range.first <= first) ++at_;
    const Piece& piece = pieces_[at_];
    const auto count = std::min(kGrain, piece.range.last - first);
    return {first, static_cast<std::uint32_t>(at_), static_cast<std::uint8_t>(count),
            piece.dense()};
  }

 private:
  const std::vector<Piece>& pieces_;
  std::size_t at_;
};

}  // namespace

RandomChoice::RandomChoice(std::uint64_t seed, double share) : seed_(seed) {
  // Exactly 1 / n if the share is that to rounding: then n steps draw every block once.
  const double whole = std::round(1 / share);
  const bool even = std::abs(share * whole - 1) < 1e-9;
  taken_ = even ? 1 : static_cast<std::uint64_t>(std::max(1.0, std::round(share * kMillion)));
  of_ = static_cast<std::uint64_t>(even ? whole : kMillion);
}

std::vector<Block> RandomChoice::blocks(const Layout& layout, Range part, store::Step step) const {
  std::vector<Block> drawn;
  if (part.count() <= 0) return drawn;
  const Zone& zone = zone_of(layout, part.first);
  const auto first = static_cast<std::uint64_t>((part.first - zone.range.first) / kGrain);
  const auto last = first + static_cast<std::uint64_t>((part.count() + kGrain - 1) / kGrain);
  drawn.reserve((last - first) * taken_ / of_ + kStratum);
  PieceFinder pieces(layout.pieces(), part.first);
  const auto turn = static_cast<std::uint64_t>(number(step)) * taken_ * kStratum;
  for (std::uint64_t stratum = first / kStratum; stratum * kStratum < last; ++stratum) {
    KeyedStream keys({seed_, zone.key, stratum});
    const Shuffle shuffle(keys.next());
    // Strata begin at different offsets: where the share of one is not a whole number of blocks,
    // the fractions of all of them average out.
    const std::uint64_t from = turn + keys.below(kStratum * of_);
    const std::uint64_t to = (from + taken_ * kStratum) / of_;
    std::array<std::uint64_t, kStratum / 64> marks{};
    for (std::uint64_t i = from / of_; i < to; ++i) {
      const std::uint64_t number = shuffle(i % kStratum);
      marks[number / 64] |= std::uint64_t{1} << (number % 64);
    }
    for (std::size_t word = 0; word < marks.size(); ++word) {
      for (std::uint64_t rest = marks[word]; rest != 0; rest &= rest - 1) {
        const std::uint64_t number =
            stratum * kStratum + word * 64 + static_cast<std::uint64_t>(std::countr_zero(rest));
        if (number < first || number >= last) continue;
        drawn.push_back(
            pieces.block(zone.range.first + static_cast<std::int64_t>(number) * kGrain));
      }
    }
  }
  return drawn;
}

}  // namespace strait::sync
