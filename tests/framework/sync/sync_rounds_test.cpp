#include "framework/sync/sync_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "tests/framework/net/dying_link.h"
#include "tests/framework/sync/replica_set.h"
#include "tests/framework/sync/usual_settings.h"
#include "tests/framework/sync/wrapped_method.h"

namespace strait::sync {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

store::Step numbered(std::int64_t number) { return static_cast<store::Step>(number); }

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// Of the pieces alone: padding stays zero.
std::vector<float> random_target(const Layout& layout, std::uint64_t seed) {
  const std::vector<float> drawn = random_values(static_cast<std::size_t>(layout.size()), seed);
  std::vector<float> target(drawn.size());
  for (const Piece& piece : layout.pieces()) {
    std::copy(drawn.begin() + piece.range.first, drawn.begin() + piece.range.last,
              target.begin() + piece.range.first);
  }
  return target;
}

ReplicaSet::Maker named(const std::string& method) {
  return [settings = usual(method)] { return make_method(settings); };
}

// A method without results: models never agree.
class Forking final : public SyncMethod {
 public:
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership&) const override {
    if (point.hook != Hook::update) return std::nullopt;
    RoundPlan plan;
    plan.ranges = {{0, layout.size()}};
    return plan;
  }
  void encode(const Round&, const Part&, const Slots&, net::Frame&) override {}
  void reduce(const Round&, const Part&, Contributions, const Slots&, net::Frame&) override {}
  void apply(const Round&, Slots&) override {}
};

// Gathers all contributions, and applies their mean.
class Gathering final : public SyncMethod {
 public:
  Gathering() : SyncMethod({.model_is_replicated = false}) {}  // replicas train on between rounds
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership&) const override {
    if (point.hook != Hook::update) return std::nullopt;
    RoundPlan plan;
    plan.pattern = Pattern::gather_all;
    for (const Piece& piece : layout.pieces()) plan.ranges.push_back(piece.range);
    return plan;
  }
  void encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) override {
    append_floats(within(slots.values(kWeights), part.range), false, out);
  }
  void apply(const Round& round, Slots& slots) override {
    for (const Part& part : round.parts) {
      const auto& contributions = round.exchanges.front().received[part.index];
      std::vector<float> theirs(static_cast<std::size_t>(part.range.count()));
      const auto weights = within(slots.values(kWeights), part.range);
      std::ranges::fill(weights, 0.0F);
      for (const net::Frame& frame : contributions) {
        read_floats(frame, false, theirs, "weights");
        for (std::size_t i = 0; i < theirs.size(); ++i) weights[i] += theirs[i];
      }
      for (float& weight : weights) weight /= static_cast<float>(contributions.size());
    }
  }
};

// Notes the bytes of own contributions that a round still holds when it is applied.
class CountingContributions final : public WrappedMethod {
 public:
  CountingContributions(std::unique_ptr<SyncMethod> method, std::atomic<std::size_t>& bytes)
      : WrappedMethod(std::move(method)), bytes_(bytes) {}
  void apply(const Round& round, Slots& slots) override {
    for (const net::Frame& frame : round.exchanges.front().own) bytes_ += frame.size();
    WrappedMethod::apply(round, slots);
  }

 private:
  std::atomic<std::size_t>& bytes_;
};

constexpr std::int64_t kRoundSteps = 8;

TEST(SyncRounds, HoldOwnContributionsOnlyForMethodsThatReadThem) {
  for (const std::string& name : methods().names()) {
    SyncSettings settings = usual(name);
    settings.every = 4;
    std::atomic<std::size_t> bytes = 0;
    const Layout layout = tiny_layout({400, 30});
    ReplicaSet set(layout, 2, [&] {
      return std::make_unique<CountingContributions>(make_method(settings), bytes);
    });
    const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
      const std::vector<float> target = random_target(layout, number);
      for (std::int64_t step = 0; step < 2 * kRoundSteps; ++step)
        replica.step(numbered(step), target, 0.01F);
    });
    EXPECT_THAT(errors, Each(IsEmpty())) << name;
    EXPECT_EQ(bytes > 0, make_method(settings)->traits.reads_own_contribution) << name;
  }
}

TEST(SyncRounds, SumsGradientsInReplicaOrderForAnyNumberAndSizes) {
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    SCOPED_TRACE(replicas);
    std::mt19937_64 chance(replicas);
    const Layout layout = tiny_layout({std::int64_t(chance() % 40 + 1),
                                       std::int64_t(chance() % 999), std::int64_t(chance() % 70)});
    ReplicaSet set(layout, replicas, named("allreduce"));
    const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
      const std::vector<float> target = random_target(layout, number);
      for (std::int64_t step = 0; step < kRoundSteps; ++step)
        replica.step(numbered(step), target, 0.01F);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));

    std::vector<float> weights(static_cast<std::size_t>(layout.size()));
    for (std::int64_t step = 0; step < kRoundSteps; ++step) {
      std::vector<float> sum(weights.size());
      for (std::size_t number = 0; number < replicas; ++number) {
        const std::vector<float> target = random_target(layout, number);
        for (std::size_t at = 0; at < sum.size(); ++at) {
          const float own = weights[at] - target[at];
          sum[at] = number == 0 ? own : sum[at] + own;
        }
      }
      for (std::size_t at = 0; at < sum.size(); ++at) weights[at] -= 0.01F * sum[at];
    }
    for (std::size_t number = 0; number < replicas; ++number) {
      const std::span<float> got = set.replica(number).slots().values(kWeights);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), weights.begin())) << number;
      EXPECT_EQ(set.replica(number).engine().traffic().rounds, kRoundSteps);
    }
  }
}

TEST(SyncRounds, GatherAllDeliversEveryContribution) {
  const Layout layout = tiny_layout({16, 64, 33});
  ReplicaSet set(layout, 5, [] { return std::make_unique<Gathering>(); });
  std::vector<float> mean(static_cast<std::size_t>(layout.size()));
  for (std::size_t number = 0; number < set.size(); ++number) {
    const std::vector<float> target = random_target(layout, number);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += target[i];
  }
  for (float& value : mean) value /= 5;
  const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
    replica.step(numbered(0), random_target(layout, number), 1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (std::size_t number = 0; number < set.size(); ++number) {
    const std::span<float> got = set.replica(number).slots().values(kWeights);
    EXPECT_TRUE(std::ranges::equal(got, mean)) << number;
  }
}

// A member that waits for room receives what others send, so rounds of any size pass. With a window
// of a byte each frame waits until the one before it is received. Tied tensors make parts that are
// encoded before earlier ones are reduced; large pieces make several parts.
TEST(SyncRounds, RoundMayExceedTheLinkWindow) {
  constexpr std::int64_t kSide = 1200;
  const Layout layout({{.name = "norm", .shape = {kSide}},
                       {.name = "a", .shape = {kSide, kSide}},
                       {.name = "b", .shape = {kSide, kSide}},
                       {.name = "tied", .shape = {kSide, 8}, .tied = true},
                       {.name = "tied too", .shape = {kSide, 4}, .tied = true}});
  std::vector<std::pair<std::string, ReplicaSet::Maker>> makers;
  for (const std::string& method : method_names()) {
    SyncSettings settings = usual(method);
    settings.every = 2;
    settings.fragments = 1;
    settings.steps = 4;
    makers.emplace_back(method, [settings] { return make_method(settings); });
  }
  makers.emplace_back("gathering", [] { return std::make_unique<Gathering>(); });
  for (const auto& [method, maker] : makers) {
    SCOPED_TRACE(method);
    ReplicaSet set(layout, 3, maker, {}, {}, {}, 1);
    const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
      const std::vector<float> target = random_target(layout, number);
      for (std::int64_t step = 0; step < 4; ++step) replica.step(numbered(step), target, 0.01F);
      replica.engine().before_model_read(numbered(4));
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_GE(set.replica(0).engine().traffic().rounds, 1);
  }
}

// A wait for results between parts would cost a round trip for each part.
TEST(SyncRounds, SendsAllContributionsBeforeAnyResultArrives) {
  const Layout layout({{.name = "a", .shape = {30, 30}},
                       {.name = "b", .shape = {std::int64_t{3} << 20}},
                       {.name = "c", .shape = {30, 40}},
                       {.name = "d", .shape = {50, 30}},
                       {.name = "e", .shape = {40, 40}, .tied = true}});
  for (const std::string& method : method_names()) {
    SCOPED_TRACE(method);
    SyncSettings settings = usual(method);
    settings.every = settings.fragments = 1;
    const auto made = make_method(settings);
    std::optional<RoundPlan> plan;
    for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update}) {
      if (!plan) plan = made->plan({numbered(0), hook}, layout, {0, {0, 1}, 0});
    }
    ASSERT_TRUE(plan);
    const std::vector<Part> parts = parts_of(*plan, {0, {0, 1}, 0});
    const auto to_the_other =
        plan->pattern == Pattern::shard_reduce
            ? std::ranges::count(parts, std::size_t{1}, [](const Part& part) { return part.owner; })
            : std::ssize(parts);
    auto mesh = replica_mesh(2);
    TinyReplica replica(layout, make_method(settings), {0, {0, 1}, 0}, std::move(mesh[0]));
    std::thread trainer([&] {
      const std::vector<float> target(static_cast<std::size_t>(layout.size()), 1);
      EXPECT_ANY_THROW(for (std::int64_t step = 0; step < 2;
                            ++step) { replica.step(numbered(step), target, 0.5F); });
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::ptrdiff_t received = 0;
    while (received < to_the_other && mesh[1][0]->receive_until(deadline)) ++received;
    EXPECT_EQ(received, to_the_other);
    mesh[1][0].reset();
    trainer.join();
  }
}

// The gradients of a skipped step are discarded, so a method must discard the residual of that
// step, too, whether it has sent the gradients or not.
TEST(SyncRounds, SkippedStepLeavesNoTrace) {
  const Layout layout({{.name = "norm", .shape = {40}},
                       {.name = "a", .shape = {30, 30}},
                       {.name = "b", .shape = {40, 40}}});
  for (const std::string& method : method_names()) {
    if (!make_method(usual(method))->traits.sums_gradients) continue;
    for (const bool tracked : {false, true}) {
      SCOPED_TRACE(method + (tracked ? " with a membership tracker" : ""));
      auto mesh = replica_mesh(2);
      std::vector<std::thread> threads;
      for (std::size_t number = 0; number < 2; ++number) {
        threads.emplace_back([&, number] {
          MembershipTracker tracker(2, static_cast<std::uint32_t>(number));
          TinyReplica replica(layout, make_method(usual(method)), tracker.wait_for(0),
                              std::move(mesh[number]), nullptr, {}, tracked ? &tracker : nullptr);
          const std::vector<float> target = random_target(layout, number);
          for (std::int64_t step = 0; step < 3; ++step) replica.step(numbered(step), target, 0.01F);
          const Snapshot before = replica.save(numbered(3));
          replica.engine().gradient_begins(numbered(3));
          std::ranges::copy(random_target(layout, 7 + number),
                            replica.slots().values(kGradient).begin());
          EXPECT_TRUE(replica.engine().gradient_whole(numbered(3)));
          replica.engine().before_update(numbered(3));
          replica.engine().updated(numbered(3), false);
          EXPECT_EQ(replica.save(numbered(4)), before);
          replica.step(numbered(4), target, 0.01F);
          EXPECT_NE(replica.save(numbered(5)), before);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

// A replica that ends during a round for a reason of its own must not report others as lost.
TEST(SyncRounds, EndingDuringARoundReportsNoLostReplica) {
  const Layout layout = tiny_layout({16, 64, 32});
  auto mesh = replica_mesh(2);
  MembershipTracker tracker(2, 0);
  std::atomic<int> accused = 0;
  tracker.on_lost([&](std::uint32_t, const std::string&) { ++accused; });
  {
    TinyReplica replica(layout, make_method(usual("cocktail")), tracker.wait_for(0),
                        std::move(mesh[0]), nullptr, {}, &tracker);
    replica.step(numbered(0), std::vector<float>(static_cast<std::size_t>(layout.size()), 1), 0.5F);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (replica.engine().awaited_link() == nullptr) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(accused, 0);
}

TEST(SyncRounds, ForkStopsAllReplicasAndNamesTheTensor) {
  const Layout layout = tiny_layout({16, 64, 32});
  ReplicaSet set(layout, 3, [] { return std::make_unique<Forking>(); });
  const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
    std::vector<float> target(static_cast<std::size_t>(layout.size()));
    if (number == 2) target[static_cast<std::size_t>(layout.piece("piece.1").range.first) + 5] = 1;
    for (std::int64_t step = 0; step < kRoundSteps; ++step)
      replica.step(numbered(step), target, 0.5F);
  });
  // The replica that found it first may have left during a round; the others may report that.
  for (const std::size_t number : {0, 1, 2}) {
    EXPECT_THAT(errors[number], testing::AnyOf(HasSubstr("piece.1"), HasSubstr("left")));
  }
  EXPECT_THAT(errors[2], HasSubstr("hold different bits of piece.1 before step 0"));
}

// A round hashes a few pieces only, the next rounds hash the others.
TEST(SyncRounds, FindsForkInAnyTensorWithinAFewRounds) {
  const std::vector<std::int64_t> sizes(40, 20);
  const Layout layout = tiny_layout(sizes);
  constexpr std::int64_t kRoundsToLookAtAll = 5;
  for (const std::size_t piece : {0, 17, 39}) {
    ReplicaSet set(layout, 2, [] { return std::make_unique<Forking>(); });
    const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
      std::vector<float> target(static_cast<std::size_t>(layout.size()));
      if (number == 1) target[static_cast<std::size_t>(layout.pieces()[piece].range.first)] = 1;
      for (std::int64_t step = 0; step < kRoundsToLookAtAll; ++step) {
        replica.step(numbered(step), target, 0.5F);
      }
    });
    EXPECT_THAT(errors, testing::Contains(HasSubstr("different bits of piece." +
                                                    std::to_string(piece) + " before")));
  }
}

TEST(SyncRounds, WaitForAReplicaThatLeftFails) {
  const Layout layout = tiny_layout({16, 64, 32});
  ReplicaSet set(layout, 4, named("allreduce"));
  const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
    const std::vector<float> target(static_cast<std::size_t>(layout.size()));
    for (std::int64_t step = 0; step < kRoundSteps; ++step) {
      if (number == 1 && step == 3) throw std::runtime_error("died");
      replica.step(numbered(step), target, 0.5F);
    }
  });
  EXPECT_EQ(errors[1], "died");
  for (const std::size_t number : {0, 2, 3}) EXPECT_THAT(errors[number], testing::Not(IsEmpty()));
}

// The engine's thread drains the links then.
TEST(SyncRounds, ErrorDuringAMembershipChangeIsThrownByTheNextCall) {
  const Layout layout = tiny_layout({16, 64, 32});
  for (const bool killed : {false, true}) {
    SCOPED_TRACE(killed ? "killed" : "sent a malformed frame");
    auto mesh = replica_mesh(3);
    const auto left = std::make_shared<std::atomic<int>>(1 << 30);
    mesh[0][2] = std::make_unique<net::DyingLink>(std::move(mesh[0][2]), left,
                                                  net::DyingLink::Death::killed);
    MembershipTracker tracker(3, 0);
    TinyReplica replica(layout, make_method(usual("allreduce")), tracker.wait_for(0),
                        std::move(mesh[0]), nullptr, {}, &tracker);
    replica.engine().gradient_begins(numbered(0));
    tracker.update(1, {0, 2});
    EXPECT_FALSE(replica.engine().gradient_whole(numbered(0)));
    if (killed) {
      *left = -1;
    } else {
      mesh[2][0]->send(net::Frame(3));
    }
    const auto ask_until = [&](std::chrono::steady_clock::time_point deadline) {
      while (std::chrono::steady_clock::now() < deadline) {
        EXPECT_FALSE(replica.engine().round_complete_now());
        std::this_thread::yield();
      }
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    EXPECT_THROW(ask_until(deadline), std::runtime_error);
    EXPECT_THROW(replica.engine().round_complete_now(), std::runtime_error)
        << "and by all later calls";
  }
}

// The late member is named, not the first one of the membership.
TEST(SyncRounds, NamesTheAwaitedLink) {
  const Layout layout = tiny_layout({16, 64, 32});
  ReplicaSet set(layout, 3, named("allreduce"));
  const auto awaits_the_last = [&](std::size_t number) {
    const net::Link* awaited = set.replica(number).engine().awaited_link();
    return awaited != nullptr && awaited->state().peer.find("0.2") != std::string::npos;
  };
  const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
    const std::vector<float> target(static_cast<std::size_t>(layout.size()));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (number == 2 && !(awaits_the_last(0) && awaits_the_last(1))) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no replica waits");
      std::this_thread::yield();
    }
    replica.step(numbered(0), target, 0.5F);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Parts of the gradient must not be encoded before the trainer has reported them ready.
TEST(SyncRounds, EncodesRangeOnlyWhenItIsReady) {
  const Layout layout = tiny_layout({16, std::int64_t{3} << 20});
  ReplicaSet set(layout, 2, named("allreduce"));
  const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
    for (std::int64_t step = 0; step < 3; ++step) {
      const std::span<float> gradient = replica.slots().values(kGradient);
      replica.engine().gradient_begins(numbered(step));
      for (std::size_t i = layout.pieces().size(); i-- > 0;) {
        const Range range = layout.pieces()[i].range;
        for (auto at = range.first; at < range.last; ++at) {
          gradient[static_cast<std::size_t>(at)] = static_cast<float>(number + 1);
        }
        replica.engine().gradient_ready(range);
      }
      replica.engine().gradient_whole(numbered(step));
      for (const Piece& piece : layout.pieces()) {
        EXPECT_EQ(gradient[static_cast<std::size_t>(piece.range.first)], 3.0F);
        EXPECT_EQ(gradient[static_cast<std::size_t>(piece.range.last - 1)], 3.0F);
        std::fill(gradient.begin() + piece.range.first, gradient.begin() + piece.range.last, -99.F);
      }
      replica.engine().before_update(numbered(step));
      replica.engine().updated(numbered(step), false);
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Otherwise it would not overlap with the compute of the next step.
TEST(SyncRounds, LateRoundDoesNotWaitForTheNextGradient) {
  const Layout layout = tiny_layout({16, std::int64_t{3} << 20});
  ReplicaSet set(layout, 2, named("cocktail"));
  const std::vector<float> target(static_cast<std::size_t>(layout.size()));
  const auto errors = set.in_parallel([&](std::size_t, TinyReplica& replica) {
    replica.step(numbered(0), target, 0.5F);
    replica.engine().gradient_begins(numbered(1));
    EXPECT_TRUE(replica.engine().round_complete_now()) << "must not wait for the gradient";
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// The maximum number of replicas, each with a thread of its own and links to all others.
TEST(SyncRounds, SynchronisesUpTo128Replicas) {
  for (const std::size_t replicas : {2, 11, 40, 128}) {
    for (const std::string method : {"allreduce", "cocktail"}) {
      SCOPED_TRACE(testing::Message() << replicas << " replicas, " << method);
      const Layout layout = tiny_layout({30, 3000, 70});
      ReplicaSet set(layout, replicas, named(method));
      const auto errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
        const std::vector<float> target = random_target(layout, number);
        for (std::int64_t step = 0; step < kRoundSteps; ++step) {
          replica.step(numbered(step), target, 0.001F);
        }
        replica.engine().before_model_read(numbered(kRoundSteps + 1));
      });
      ASSERT_THAT(errors, Each(IsEmpty()));
      const std::string model = set.replica(0).engine().method().traits.model_slot;
      const std::span<const float> first = std::as_const(set.replica(0).slots()).values(model);
      EXPECT_TRUE(std::ranges::any_of(first, [](float value) { return value != 0; }));
      for (std::size_t number = 1; number < replicas; ++number) {
        const auto other = std::as_const(set.replica(number).slots()).values(model);
        ASSERT_TRUE(std::ranges::equal(first, other)) << number;
      }
    }
  }
}

}  // namespace
}  // namespace strait::sync
