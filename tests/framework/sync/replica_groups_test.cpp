// Replicas in groups: engines of their own sum in each, and a method runs between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "framework/sync/forecast.h"
#include "framework/sync/frame_relay.h"
#include "framework/sync/methods.h"
#include "framework/sync/shared_memory_group.h"
#include "framework/sync/sync_rounds.h"
#include "tests/framework/sync/replica_set.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

using Values = std::vector<float>;

store::Step at(std::int64_t step) { return static_cast<store::Step>(step); }

// A replica as stages/replica_sync.h puts it together, with a trainer whose gradient is the sum of
// weights - target over its targets.
class Member {
 public:
  Member(const Layout& layout, const SyncSettings& settings)
      : weights_(static_cast<std::size_t>(layout.size())),
        gradient_(weights_.size()),
        first_moment_(weights_.size()),
        second_moment_(weights_.size()),
        method_(make_method(settings)),
        slots_(layout, {weights_, gradient_, first_moment_, second_moment_},
               method_->traits.slots) {
    method_->start(slots_);
  }

  void join(const SyncSettings& settings, const Membership& own, const Membership& leaders,
            LinkRow links, net::SharedMemory memory, const std::vector<GroupHello>& hellos,
            std::unique_ptr<FrameRelay> relay) {
    relay_ = std::move(relay);
    if (own.count() > 1) {
      LinkRow in_group(links.size());
      const net::Link* const to_leader = links[own.members.front()].get();
      for (const std::uint32_t one : own.members) in_group[one] = std::move(links[one]);
      group_ = std::make_unique<SharedMemoryGroup>(gradient_, std::move(memory), hellos, own);
      sums_ = std::make_unique<SyncRounds>(make_method(settings_in_group(settings)), slots_, own,
                                           std::move(in_group), nullptr, GroupRounds{group_.get()});
      links = own.mine == 0 ? leader_links(std::move(links), *relay_)
                            : follower_links(leaders, *relay_, to_leader);
    }
    rounds_ = std::make_unique<SyncRounds>(std::move(method_), slots_, leaders, std::move(links));
  }

  void step(std::int64_t step, const std::vector<Values>& targets) {
    if (sums_ != nullptr) sums_->gradient_begins(at(step));
    std::ranges::fill(gradient_, 0.0F);
    for (const Values& target : targets) {
      for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] += weights_[i] - target[i];
    }
    if (sums_ != nullptr) sums_->gradient_whole(at(step));
    rounds_->gradient_begins(at(step));
    rounds_->gradient_whole(at(step));
    rounds_->gradient_clipped(at(step));
    rounds_->before_update(at(step));
    sent_.push_back(rounds_->traffic().sent_bytes +
                    (sums_ == nullptr ? 0 : sums_->traffic().sent_bytes));
    const bool by_moment = rounds_->method().update_rule(at(step)) == UpdateRule::moment_given;
    constexpr float kRate = 0.01F;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (!by_moment) first_moment_[i] = 0.9F * first_moment_[i] + 0.1F * gradient_[i];
      if (!by_moment) second_moment_[i] += gradient_[i] * gradient_[i];
      weights_[i] -= kRate * (by_moment ? first_moment_[i] : gradient_[i]);
    }
    rounds_->updated(at(step), false);
  }

  // Weights, and all slots of the method.
  std::vector<std::vector<std::byte>> state() {
    rounds_->before_update(at(1'000'000));  // what is due
    std::vector<std::vector<std::byte>> state;
    const Range all{0, slots_.layout().size()};
    std::vector<std::string> names = {kWeights, kFirstMoment};
    for (const SlotNeed& need : slots_.needs()) names.push_back(need.name);
    for (const std::string& name : names) {
      const auto bytes = std::as_const(slots_).bytes(name, all);
      state.emplace_back(bytes.begin(), bytes.end());
    }
    return state;
  }
  // Over links, until each step's update.
  const std::vector<std::uint64_t>& sent() const { return sent_; }

 private:
  Values weights_;
  Values gradient_;
  Values first_moment_;
  Values second_moment_;
  std::unique_ptr<SyncMethod> method_;
  Slots slots_;
  std::unique_ptr<FrameRelay> relay_;
  std::unique_ptr<SharedMemoryGroup> group_;
  std::unique_ptr<SyncRounds> sums_;
  std::unique_ptr<SyncRounds> rounds_;
  std::vector<std::uint64_t> sent_;
};

std::vector<std::unique_ptr<Member>> members_of(const Layout& layout, const SyncSettings& settings,
                                                const ReplicaGroups& groups) {
  std::vector<std::unique_ptr<Member>> members;
  std::size_t count = 0;
  for (const auto& group : groups) count += group.size();
  auto mesh = replica_mesh(count);
  for (std::size_t i = 0; i < count; ++i) {
    members.push_back(std::make_unique<Member>(layout, settings));
  }
  for (const auto& group : groups) {
    std::vector<net::SharedMemory> memories;
    std::vector<GroupHello> hellos;
    for (std::size_t i = 0; i < group.size(); ++i) {
      memories.push_back(SharedMemoryGroup::memory_for(static_cast<std::size_t>(layout.size())));
      hellos.push_back(SharedMemoryGroup::hello("here"));
      hellos.back().memory = memories.back().key().text();
    }
    const std::size_t readers = group.size() - 1;
    net::SharedMemory relayed = FrameRelay::memory_for(readers);
    const net::SharedMemoryKey key = relayed.key();
    std::vector<std::unique_ptr<FrameRelay>> relays;
    for (std::size_t i = 0; i < readers; ++i) {
      relays.push_back(
          std::make_unique<FrameRelay>(FrameRelay::open(key, readers, group[0]), readers, i));
    }
    relays.insert(relays.begin(), std::make_unique<FrameRelay>(std::move(relayed), readers));
    for (std::size_t i = 0; i < group.size(); ++i) {
      members[group[i]]->join(settings, group_of(groups, group[i]), leaders_of(groups, group[i]),
                              std::move(mesh[group[i]]), std::move(memories[i]), hellos,
                              std::move(relays[i]));
    }
  }
  return members;
}

Values values_of(const Layout& layout, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Values values(static_cast<std::size_t>(layout.size()));
  for (const Piece& piece : layout.pieces()) {
    for (auto i = piece.range.first; i < piece.range.last; ++i) {
      values[static_cast<std::size_t>(i)] = normal(random);
    }
  }
  return values;
}

// Each trains on so many targets of its own.
void train(std::vector<std::unique_ptr<Member>>& members, const Layout& layout, std::size_t each,
           std::int64_t steps, std::uint64_t seed) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      std::vector<Values> targets;
      for (std::size_t t = i * each; t < (i + 1) * each; ++t) {
        targets.push_back(values_of(layout, seed + t));
      }
      for (std::int64_t step = 0; step < steps; ++step) members[i]->step(step, targets);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

SyncSettings settings_of(const std::string& method) {
  SyncSettings settings = usual(method);
  settings.every = 6;
  settings.fragments = 3;
  settings.rank = 3;
  return settings;
}

Layout layout_of(std::int64_t rows) {
  return Layout({{.name = "a", .shape = {rows, 50}},
                 {.name = "norm", .shape = {90}},
                 {.name = "tied", .shape = {20, 30}, .tied = true}});
}

class GroupsOfReplicas : public testing::TestWithParam<std::string> {};

TEST_P(GroupsOfReplicas, HaveBitsOfReplicasWithRowsOfTheirMembers) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const Layout layout = layout_of(30);
  for (const std::size_t groups : {1U, 2U, 3U}) {
    SCOPED_TRACE(groups);
    ReplicaGroups pairs;
    for (std::uint32_t i = 0; i < groups; ++i) pairs.push_back({2 * i, 2 * i + 1});
    auto grouped = members_of(layout, settings_of(GetParam()), pairs);
    auto plain = members_of(layout, settings_of(GetParam()), separate_replicas(groups));
    train(grouped, layout, 1, 14, seed);
    train(plain, layout, 2, 14, seed);
    for (std::size_t i = 0; i < grouped.size(); ++i) {
      EXPECT_EQ(grouped[i]->state(), plain[i / 2]->state()) << "replica " << i;
    }
  }
}

TEST_P(GroupsOfReplicas, SendWhatIsForecast) {
  constexpr std::int64_t kFirst = 6;
  constexpr std::int64_t kSteps = 18;
  const Layout layout = layout_of(6000);
  const SyncSettings settings = settings_of(GetParam());
  const ReplicaGroups groups = {{0, 1, 2}, {3, 4, 5}};
  auto members = members_of(layout, settings, groups);
  train(members, layout, 1, kSteps, 3);
  // As ForecastTest.
  const double slack = GetParam() == "cocktail" ? 0.15 : 0.06;
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const auto& sent = members[i]->sent();
    const double step = static_cast<double>(sent.back() - sent[kFirst - 1]) / (kSteps - kFirst);
    const double expected = forecast(settings, layout, groups, i).step_bytes;
    // Ready messages have checksums of a few tensors.
    EXPECT_NEAR(step, expected, slack * expected + 600) << "replica " << i;
    if (i % 3 > 0) {
      EXPECT_LT(step, 1000) << "only leaders send to other groups";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupsOfReplicas, testing::ValuesIn(method_names()),
                         [](const auto& method) { return method.param; });

// The members of each group in their order, then the groups.
TEST(SumsInGroups, AreInStatedOrder) {
  const Layout layout({{.name = "a", .shape = {1}}});
  // In float32, one is lost beside 2^24 and two are not.
  const std::vector<float> parts = {16777216.0F, 1.0F, 1.0F, 0.0F};
  const auto summed = [&](const ReplicaGroups& groups) {
    float sum = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      float of_group = parts[groups[g].front()];
      for (std::size_t i = 1; i < groups[g].size(); ++i) of_group += parts[groups[g][i]];
      sum = g == 0 ? of_group : sum + of_group;
    }
    return sum;
  };
  ASSERT_NE(summed({{0, 1}, {2, 3}}), summed({{0, 3}, {1, 2}}));
  for (const ReplicaGroups& groups :
       {ReplicaGroups{{0, 1}, {2, 3}}, ReplicaGroups{{0, 3}, {1, 2}}, separate_replicas(4)}) {
    SyncSettings settings;
    auto members = members_of(layout, settings, groups);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < members.size(); ++i) {
      threads.emplace_back([&, i] {
        Values target(static_cast<std::size_t>(layout.size()));
        target[0] = -parts[i];  // weights are zero
        members[i]->step(0, {target});
      });
    }
    for (std::thread& thread : threads) thread.join();
    // The first moment after one step is a tenth of the sum.
    const float moment = 0.1F * summed(groups);
    for (auto& member : members) {
      const auto state = member->state();
      float got = 0;
      std::copy_n(state[1].data(), sizeof got, reinterpret_cast<std::byte*>(&got));
      EXPECT_EQ(got, moment) << groups_text(groups);
    }
  }
}

}  // namespace
}  // namespace strait::sync
