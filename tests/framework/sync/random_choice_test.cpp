#include "framework/sync/random_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace strait::sync {
namespace {

store::Step at_step(std::int64_t number) { return static_cast<store::Step>(number); }

Layout layout_of(const std::vector<PieceSpec>& specs) { return Layout(specs); }

std::vector<Block> all_blocks(const RandomChoice& choice, const Layout& layout, std::int64_t step) {
  std::vector<Block> blocks;
  for (const Zone& zone : layout.zones()) {
    for (const Block& block : choice.blocks(layout, zone.range, at_step(step))) {
      blocks.push_back(block);
    }
  }
  return blocks;
}

std::vector<PieceSpec> random_pieces(std::mt19937_64& random) {
  std::vector<PieceSpec> specs;
  const std::size_t pieces = 1 + random() % 6;
  for (std::size_t i = 0; i < pieces; ++i) {
    PieceSpec spec;
    spec.name = "piece." + std::to_string(i);
    spec.shape = {static_cast<std::int64_t>(1 + random() % 3000)};
    if (random() % 2 == 0) spec.shape.push_back(static_cast<std::int64_t>(1 + random() % 20));
    spec.tied = random() % 4 == 0;
    specs.push_back(spec);
  }
  return specs;
}

// How often each block of a layout is drawn in some consecutive steps.
std::map<std::int64_t, int> visits(const RandomChoice& choice, const Layout& layout,
                                   std::int64_t from, std::int64_t steps) {
  std::map<std::int64_t, int> counts;
  for (std::int64_t first = 0; first < layout.size(); first += kGrain) counts[first] = 0;
  for (std::int64_t step = from; step < from + steps; ++step) {
    for (const Block& block : all_blocks(choice, layout, step)) ++counts[block.first];
  }
  return counts;
}

TEST(RandomChoice, DrawsEveryBlockOnceInNStepsForAShareOfOneNth) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    const Layout layout = layout_of(random_pieces(random));
    const auto n = static_cast<std::int64_t>(1 + random() % 40);
    const RandomChoice choice(random(), 1.0 / static_cast<double>(n));
    const auto from = static_cast<std::int64_t>(random() % 1'000'000'000);
    for (const auto& [first, count] : visits(choice, layout, from, n)) {
      ASSERT_EQ(count, 1) << "block at " << first << " of " << layout.size() << ", n " << n
                          << ", round " << round;
    }
  }
}

TEST(RandomChoice, DrawsEveryBlockAgainAfterOneOverTheShare) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> shares(0.004, 1);
  for (int round = 0; round < 60; ++round) {
    const Layout layout = layout_of(random_pieces(random));
    const double share = shares(random);
    const RandomChoice choice(random(), share);
    std::map<std::int64_t, std::int64_t> last;
    const auto most = static_cast<std::int64_t>(1 / share) + 1;
    for (std::int64_t step = 0; step < 3 * most; ++step) {
      for (const Block& block : all_blocks(choice, layout, step)) {
        const auto before = last.find(block.first);
        if (before != last.end()) {
          // Even up to whole steps and the millionths of a share.
          ASSERT_GE(step - before->second + 1, std::floor(1 / share)) << share;
          ASSERT_LE(step - before->second - 1, std::ceil(1 / share)) << share;
        }
        last[block.first] = step;
      }
    }
    ASSERT_EQ(last.size(), static_cast<std::size_t>((layout.size() + kGrain - 1) / kGrain));
  }
}

TEST(RandomChoice, DrawsTheShareInEveryStep) {
  const Layout layout = layout_of({{"w", {4096, 256}, false}});
  for (const double share : {0.001, 0.01, 0.1, 0.15, 1.0 / 3, 0.4, 0.77, 1.0}) {
    const RandomChoice choice(7, share);
    for (std::int64_t step = 0; step < 20; ++step) {
      const auto blocks = static_cast<double>(all_blocks(choice, layout, step).size());
      EXPECT_NEAR(blocks / (4096 * 256 / kGrain), share, 0.001 + share * 0.005) << step;
    }
  }
}

TEST(RandomChoice, IsIndependentOfHowAZoneIsCut) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const Layout layout = layout_of(random_pieces(random));
    const RandomChoice choice(random(), 0.05 + 0.1 * static_cast<double>(random() % 10));
    const auto step = static_cast<std::int64_t>(random() % 1000);
    const std::size_t members = 1 + random() % 9;
    std::vector<Block> in_shares;
    for (const Zone& zone : layout.zones()) {
      for (std::size_t member = 0; member < members; ++member) {
        const Range part = share(zone.range, members, member);
        for (const Block& block : choice.blocks(layout, part, at_step(step))) {
          ASSERT_GE(block.first, part.first);
          ASSERT_LE(block.first + block.count, part.last);
          in_shares.push_back(block);
        }
      }
    }
    ASSERT_EQ(in_shares, all_blocks(choice, layout, step));
  }
}

TEST(RandomChoice, DrawsTheSameCoordinatesOfATiedTensorOnAnyStage) {
  const PieceSpec tied{"embedding", {300, 40}, true};
  const Layout first = layout_of({tied, {"a", {64, 64}, false}});
  const Layout last = layout_of({{"b", {100, 10}, false}, {"norm", {17}, false}, tied});
  const RandomChoice choice(5, 0.1);
  for (std::int64_t step = 0; step < 30; ++step) {
    const Range here = first.piece("embedding").range;
    const Range there = last.piece("embedding").range;
    const auto a = choice.blocks(first, first.zones().back().range, at_step(step));
    const auto b = choice.blocks(last, last.zones().back().range, at_step(step));
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].first - here.first, b[i].first - there.first);
      ASSERT_EQ(a[i].count, b[i].count);
    }
  }
}

TEST(RandomChoice, NamesThePieceOfABlockAndExcludesPadding) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 40; ++round) {
    const Layout layout = layout_of(random_pieces(random));
    const RandomChoice choice(random(), 1);
    std::int64_t values = 0;
    for (const Block& block : all_blocks(choice, layout, round)) {
      const Piece& piece = layout.pieces()[block.piece];
      ASSERT_GE(block.first, piece.range.first);
      ASSERT_LE(block.first + block.count, piece.range.last);
      ASSERT_EQ(block.dense, piece.dense());
      values += block.count;
    }
    std::int64_t expected = 0;
    for (const Piece& piece : layout.pieces()) expected += piece.range.count();
    ASSERT_EQ(values, expected);
  }
}

TEST(RandomChoice, AdjacentBlocksAndSeedsAreIndependent) {
  const Layout layout = layout_of({{"w", {16, 16384}, false}});
  constexpr double kShare = 0.1;
  const RandomChoice one(1, kShare);
  const RandomChoice other(2, kShare);
  double together = 0;
  double same = 0;
  double all = 0;
  for (std::int64_t step = 0; step < 10; ++step) {
    std::set<std::int64_t> chosen;
    for (const Block& block : all_blocks(one, layout, step)) chosen.insert(block.first);
    for (const Block& block : all_blocks(other, layout, step)) {
      same += static_cast<double>(chosen.count(block.first));
    }
    for (const std::int64_t first : chosen) {
      together += static_cast<double>(chosen.count(first + kGrain));
    }
    all += static_cast<double>(chosen.size());
  }
  EXPECT_NEAR(together / all, kShare, 0.01);
  EXPECT_NEAR(same / all, kShare, 0.01);
}

}  // namespace
}  // namespace strait::sync
