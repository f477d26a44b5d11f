// The contract between methods and the engine, for all methods: random tensors, 1 to 9 replicas,
// random settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "framework/sync/methods.h"
#include "framework/sync/sync_error.h"
#include "tests/framework/sync/quadratic.h"
#include "tests/framework/sync/random_stage.h"

namespace strait::sync {
namespace {

constexpr std::int64_t kLawSteps = 14;

class MethodLaws : public testing::TestWithParam<std::string> {
 protected:
  // Frequent rounds, so that a few steps are enough.
  SyncSettings random_settings(std::mt19937_64& random) const {
    SyncSettings settings;
    settings.method = GetParam();
    settings.seed = random();
    settings.narrow_wire = random() % 2 == 0;
    settings.random = 0.3;
    settings.top = 0.5;
    settings.bits = static_cast<int>(2 + random() % 7);
    settings.fragments = static_cast<std::int64_t>(1 + random() % 3);
    settings.every = settings.fragments + static_cast<std::int64_t>(random() % 3);
    settings.late = static_cast<std::int64_t>(random() % 2);
    settings.rank = static_cast<std::int64_t>(1 + random() % 4);
    settings.steps = kLawSteps;
    return settings;
  }
  static DirectRound::Maker maker(const SyncSettings& settings) {
    return [settings] { return make_method(settings); };
  }
};

TEST_P(MethodLaws, MembersHoldTheSameModelAfterEveryRound) {
  std::mt19937_64 random(1);
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    SCOPED_TRACE(replicas);
    const Layout layout = random_layout(random);
    DirectRound stage(layout, replicas, maker(random_settings(random)));
    start_at_random(stage, random);
    Quadratic problem(stage, random(), {.noise = 0.2, .adam = true});
    std::uint64_t applied = 0;
    for (std::int64_t step = 0; step < kLawSteps; ++step) {
      problem.step(step);
      problem.look(step + 1);
      if (stage.applied() == applied || !stage.replica(0).method->traits.model_is_replicated)
        continue;
      applied = stage.applied();
      for (std::size_t i = 1; i < replicas; ++i) {
        ASSERT_TRUE(same_bits(model_of(stage.replica(0)), model_of(stage.replica(i)))) << step;
      }
    }
    EXPECT_GT(stage.applied(), 0);
  }
}

TEST_P(MethodLaws, RemainingMembersKeepTheSameModelWhenOthersLeave) {
  std::mt19937_64 random(2);
  for (std::size_t replicas = 3; replicas <= 9; replicas += 2) {
    SCOPED_TRACE(replicas);
    DirectRound stage(random_layout(random), replicas, maker(random_settings(random)));
    if (!stage.replica(0).method->traits.model_is_replicated) return;
    start_at_random(stage, random);
    Quadratic problem(stage, random(), {.noise = 0.2, .adam = true});
    for (std::int64_t step = 0; step < 6; ++step) problem.step(step);
    if (stage.in_progress()) stage.drop();
    std::vector<std::uint32_t> members;
    for (std::uint32_t number = 1; number < replicas; number += 2) members.push_back(number);
    stage.set_members(members);
    for (std::int64_t step = 6; step < kLawSteps; ++step) {
      problem.step(step, members);
      for (const auto member : members) {
        ASSERT_TRUE(same_bits(model_of(stage.replica(1)), model_of(stage.replica(member)))) << step;
      }
    }
  }
}

// Opens, exchanges and drops the round of a moment, and expects that it leaves no trace.
void drop_once(DirectRound& stage, const HookPoint& point) {
  if (stage.in_progress()) return;
  std::vector<std::vector<std::vector<float>>> before;
  for (std::size_t i = 0; i < stage.size(); ++i) before.push_back(slots_of(stage.replica(i)));
  if (!stage.open(point)) return;
  stage.exchange();
  stage.drop();
  for (std::size_t i = 0; i < stage.size(); ++i) {
    ASSERT_TRUE(same_bits(before[i], slots_of(stage.replica(i))));
  }
}

TEST_P(MethodLaws, DroppedRoundLeavesNoTrace) {
  std::mt19937_64 random(3);
  for (std::size_t replicas = 2; replicas <= 6; ++replicas) {
    SCOPED_TRACE(replicas);
    const Layout layout = random_layout(random);
    const SyncSettings settings = random_settings(random);
    const std::uint64_t seed = random();
    std::vector<std::vector<std::vector<float>>> ends;
    for (const bool drops : {false, true}) {
      std::mt19937_64 same(seed);
      DirectRound stage(layout, replicas, maker(settings));
      start_at_random(stage, same);
      for (std::int64_t step = 0; step < kLawSteps; ++step) {
        for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update, Hook::model_read}) {
          const HookPoint point{step_number(step), hook};
          if (hook == Hook::gradient || hook == Hook::update) {
            // Not during a round that still reads them.
            stage.before_update(point.step);
            for (std::size_t i = 0; i < replicas; ++i) {
              auto& values =
                  hook == Hook::gradient ? stage.replica(i).gradient : stage.replica(i).weights;
              std::ranges::copy(random_values(layout, same), values.begin());
              std::ranges::fill(stage.replica(i).second_moment, 0.5F);
            }
          }
          if (drops) drop_once(stage, point);
          stage.pass(point);
        }
      }
      if (stage.in_progress()) stage.drop();
      for (std::size_t i = 0; i < replicas; ++i) {
        const auto all = slots_of(stage.replica(i));
        if (drops) {
          EXPECT_TRUE(same_bits(ends[i], all));
        } else {
          ends.push_back(all);
        }
      }
    }
  }
}

TEST(SharesOfRows, AreOfTheMembersThatAreLeft) {
  EXPECT_TRUE(shares_of({}, {.members = {0, 1}}).empty());
  EXPECT_EQ(shares_of({6, 1, 1}, {.members = {0, 1, 2}}), (std::vector{0.75F, 0.125F, 0.125F}));
  EXPECT_EQ(shares_of({6, 1, 2}, {.members = {0, 2}}), (std::vector{0.75F, 0.25F}));
}

// What a replica with three times the rows contributes counts as that of three replicas.
TEST_P(MethodLaws, ContributionsCountByRows) {
  if (!methods().named(GetParam()).weighs_rows) return;
  std::mt19937_64 random(6);
  const Layout layout = random_layout(random);
  SyncSettings settings = random_settings(random);
  settings.narrow_wire = false;
  settings.bits = 8;
  settings.top = 1;
  settings.every = settings.fragments = 1;
  const auto one = random_values(layout, random);
  const auto other = random_values(layout, random);
  const std::uint64_t seed = random();
  const auto model_with = [&](std::size_t replicas, const std::vector<std::int64_t>& rows) {
    settings.rows = rows;
    DirectRound stage(layout, replicas, maker(settings));
    std::mt19937_64 same(seed);
    start_at_random(stage, same);
    for (std::size_t i = 0; i < replicas; ++i) {
      const std::vector<float>& change = i + 1 < replicas ? one : other;
      for (std::size_t at = 0; at < change.size(); ++at) stage.replica(i).weights[at] += change[at];
    }
    for (std::int64_t step = 0; step < 2; ++step) stage.pass({step_number(step), Hook::update});
    return model_of(stage.replica(0));
  };
  const std::vector<float> unequal = model_with(2, {3, 1});
  const std::vector<float> as_four = model_with(4, {});
  const std::vector<float> equal = model_with(2, {});
  double most = 0;
  double apart = 0;
  for (std::size_t at = 0; at < unequal.size(); ++at) {
    most = std::max(most, std::abs(double{unequal[at]} - as_four[at]));
    apart = std::max(apart, std::abs(double{unequal[at]} - equal[at]));
  }
  EXPECT_LT(most, 0.1 * apart);
  EXPECT_GT(apart, 0.1);
}

// Runs work as a stage with so many threads does, in an unspecified order.
Spread over_threads(std::int64_t threads) {
  return [threads](std::int64_t count, const Work& work) {
    std::vector<std::thread> all;
    for (std::int64_t i = threads; i-- > 0;) {
      all.emplace_back([=, &work] { work(count * i / threads, count * (i + 1) / threads); });
    }
    for (std::thread& thread : all) thread.join();
  };
}

TEST_P(MethodLaws, BitsAreIndependentOfTheNumberOfThreads) {
  std::mt19937_64 random(8);
  const Layout layout({{.name = "w", .shape = {900, 130}},
                       {.name = "norm", .shape = {77}},
                       {.name = "tied", .shape = {90, 50}, .tied = true}});
  SyncSettings settings = random_settings(random);
  settings.random = 0.7;
  const std::uint64_t seed = random();
  std::vector<std::vector<std::vector<float>>> alone;
  for (const std::int64_t threads : {1, 2, 5}) {
    std::mt19937_64 same(seed);
    DirectRound stage(layout, 3, maker(settings));
    for (std::size_t i = 0; i < stage.size(); ++i) {
      if (threads > 1) stage.replica(i).slots.spread_by(over_threads(threads));
    }
    start_at_random(stage, same);
    Quadratic problem(stage, same(), {.noise = 0.2, .adam = true});
    for (std::int64_t step = 0; step < kLawSteps; ++step) problem.step(step);
    for (std::size_t i = 0; i < stage.size(); ++i) {
      const auto all = slots_of(stage.replica(i));
      if (threads == 1) {
        alone.push_back(all);
      } else {
        ASSERT_TRUE(same_bits(alone[i], all)) << threads << " threads";
      }
    }
  }
}

TEST_P(MethodLaws, PaddingStaysZero) {
  std::mt19937_64 random(4);
  const Layout layout({{.name = "a", .shape = {3}},
                       {.name = "b", .shape = {5, 7}},
                       {.name = "c", .shape = {1, 1}},
                       {.name = "d", .shape = {33}, .tied = true}});
  std::vector<bool> padding(static_cast<std::size_t>(layout.size()), true);
  for (const Piece& piece : layout.pieces()) {
    for (auto i = piece.range.first; i < piece.range.last; ++i) {
      padding[static_cast<std::size_t>(i)] = false;
    }
  }
  for (int run = 0; run < 10; ++run) {
    DirectRound stage(layout, 3, maker(random_settings(random)));
    start_at_random(stage, random);
    Quadratic problem(stage, random(), {.noise = 0.2, .adam = true});
    for (std::int64_t step = 0; step < kLawSteps; ++step) problem.step(step);
    for (std::size_t i = 0; i < stage.size(); ++i) {
      for (const auto& slot : slots_of(stage.replica(i))) {
        for (std::size_t at = 0; at < slot.size(); ++at) {
          ASSERT_TRUE(!padding[at] || slot[at] == 0) << at;
        }
      }
    }
  }
}

// Two stages with different tensors, except for one that both have. It gets the same gradients on
// both in every step, so it must stay equal.
TEST_P(MethodLaws, TiedWeightsMatchWithoutCommunication) {
  std::mt19937_64 random(5);
  const std::vector<PieceSpec> tied_specs = {{.name = "tied", .shape = {37, 19}, .tied = true}};
  for (std::size_t replicas = 1; replicas <= 5; ++replicas) {
    SCOPED_TRACE(replicas);
    const SyncSettings settings = random_settings(random);
    std::vector<std::unique_ptr<DirectRound>> stages;
    std::vector<Range> tied;
    for (int i = 0; i < 2; ++i) {
      const Layout layout = random_layout(random, tied_specs);
      tied.push_back(layout.piece("tied").range);
      stages.push_back(std::make_unique<DirectRound>(layout, replicas, maker(settings)));
    }
    const auto same_in_both = [&](auto choose, std::size_t replica) {
      std::vector<float>& one = choose(stages[0]->replica(replica));
      std::vector<float>& two = choose(stages[1]->replica(replica));
      std::normal_distribution<float> normal;
      for (std::int64_t i = 0; i < tied[0].count(); ++i) {
        const float value = normal(random);
        one[static_cast<std::size_t>(tied[0].first + i)] += value;
        two[static_cast<std::size_t>(tied[1].first + i)] += value;
      }
    };
    for (auto& stage : stages) stage->start();
    for (std::int64_t step = 0; step < kLawSteps; ++step) {
      for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update, Hook::model_read}) {
        for (auto& stage : stages) stage->before_update(step_number(step));
        for (std::size_t i = 0; i < replicas; ++i) {
          if (hook == Hook::gradient) {
            for (auto& stage : stages) {
              std::ranges::fill(stage->replica(i).gradient, 0.0F);
              std::ranges::fill(stage->replica(i).second_moment, 0.5F);
            }
            same_in_both(
                [](auto& replica) -> auto& { return replica.gradient; }, i);
          }
          if (hook == Hook::update) {
            same_in_both(
                [](auto& replica) -> auto& { return replica.weights; }, i);
          }
        }
        for (auto& stage : stages) stage->pass({step_number(step), hook});
        for (std::size_t i = 0; i < replicas; ++i) {
          const auto one = slots_of(stages[0]->replica(i));
          const auto two = slots_of(stages[1]->replica(i));
          for (std::size_t slot = 0; slot < one.size(); ++slot) {
            ASSERT_TRUE(std::equal(one[slot].begin() + tied[0].first,
                                   one[slot].begin() + tied[0].last,
                                   two[slot].begin() + tied[1].first))
                << "slot " << slot << " of replica " << i << " at step " << step;
          }
        }
      }
    }
  }
}

// A malformed frame, as a faulty or malicious peer would send it.
void damage(net::Frame& frame, std::mt19937_64& random) {
  switch (random() % 4) {
    case 0:
      frame.resize(frame.empty() ? 0 : random() % frame.size());
      break;
    case 1:
      frame.insert(frame.end(), 1 + random() % 9, std::byte{0x7F});
      break;
    case 2:
      for (auto& byte : frame) byte = static_cast<std::byte>(random());
      break;
    default:
      if (frame.empty()) break;
      frame[random() % frame.size()] ^= static_cast<std::byte>(1 + random() % 255);
  }
}

// Exchanges one round at a random step, without applying it.
bool exchanged_round(DirectRound& stage, std::mt19937_64& random) {
  Quadratic problem(stage, random(), {.noise = 0.2, .adam = true});
  const auto steps = static_cast<std::int64_t>(random() % kLawSteps);
  for (std::int64_t step = 0; step < steps; ++step) problem.step(step);
  if (stage.in_progress()) stage.drop();
  for (std::int64_t step = steps; step < kLawSteps; ++step) {
    for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update, Hook::model_read}) {
      if (!stage.open({step_number(step), hook})) continue;
      stage.exchange();
      return !stage.rounds()[0].parts.empty();
    }
  }
  return false;
}

// decode() must refuse it: a member that has sent ready must be able to apply the round.
TEST_P(MethodLaws, RefusesMalformedResultsWithoutAnyChange) {
  std::mt19937_64 random(6);
  int refused = 0;
  for (int run = 0; run < 120; ++run) {
    DirectRound stage(random_layout(random), 1 + random() % 4, maker(random_settings(random)));
    start_at_random(stage, random);
    if (!exchanged_round(stage, random)) continue;
    const std::size_t victim = random() % stage.size();
    Round& round = stage.rounds()[victim];
    const std::size_t which = random() % round.exchanges.size();
    auto& exchange = round.exchanges[which];
    const std::size_t part = random() % round.parts.size();
    if (round.plan.pattern == Pattern::shard_reduce) {
      damage(exchange.results[part], random);
    } else if (!exchange.received[part].empty()) {
      damage(exchange.received[part][random() % exchange.received[part].size()], random);
    }
    DirectReplica& replica = stage.replica(victim);
    const auto before = slots_of(replica);
    Round then = round;
    then.exchange = static_cast<int>(which);
    then.exchanges.resize(which + 1);
    try {
      for (const Part& each : then.parts) replica.method->decode(then, each, replica.slots);
    } catch (const SyncError& error) {
      EXPECT_EQ(error.kind(), SyncError::Kind::corrupt);
      ASSERT_TRUE(same_bits(before, slots_of(replica)));
      ++refused;
      continue;
    }
    ASSERT_NO_THROW(replica.method->apply(round, replica.slots));
  }
  EXPECT_GT(refused, 25);
}

TEST_P(MethodLaws, OwnerRefusesMalformedContributions) {
  std::mt19937_64 random(7);
  int refused = 0;
  for (int run = 0; run < 120; ++run) {
    DirectRound stage(random_layout(random), 2 + random() % 3, maker(random_settings(random)));
    start_at_random(stage, random);
    if (!exchanged_round(stage, random)) continue;
    if (stage.rounds()[0].plan.pattern != Pattern::shard_reduce) {
      ++refused;  // no part has an owner
      continue;
    }
    Round& round = stage.rounds()[0];
    const Part& part = round.parts[random() % round.parts.size()];
    round.exchange = static_cast<int>(random() % round.exchanges.size());
    std::vector<net::Frame> frames;
    for (const Round& each : stage.rounds()) {
      frames.push_back(each.exchanges[static_cast<std::size_t>(round.exchange)].own[part.index]);
    }
    damage(frames.back(), random);
    const std::vector<std::span<const std::byte>> contributions(frames.begin(), frames.end());
    DirectReplica& owner = stage.replica(part.owner);
    net::Frame out;
    try {
      owner.method->reduce(stage.rounds()[part.owner], part, contributions, owner.slots, out);
    } catch (const SyncError& error) {
      EXPECT_EQ(error.kind(), SyncError::Kind::corrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, 25);
}

INSTANTIATE_TEST_SUITE_P(All, MethodLaws, testing::ValuesIn(method_names()),
                         [](const auto& made) { return made.param; });

}  // namespace
}  // namespace strait::sync
