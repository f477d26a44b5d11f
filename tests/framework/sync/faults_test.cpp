#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "framework/sync/methods.h"
#include "tests/framework/net/dying_link.h"
#include "tests/framework/sync/replica_set.h"

namespace strait::sync {
namespace {

using testing::Each;
using testing::IsEmpty;

constexpr std::int64_t kFaultSteps = 14;
constexpr std::int64_t kSaveEvery = 3;
constexpr float kRate = 0.05F;

store::Step fault_step(std::int64_t number) { return static_cast<store::Step>(number); }

constexpr std::size_t kReplicas = 3;
constexpr int kFaultRounds = 25;
constexpr int kMostRounds = 500;  // until enough of them were cut before their end

struct Ending {
  std::vector<std::string> errors;
  std::map<std::int64_t, std::vector<Snapshot>> saved;  // by steps made, by replica
};

class Faults : public testing::TestWithParam<std::string> {
 protected:
  static SyncSettings settings() {
    SyncSettings settings;
    settings.method = GetParam();
    settings.seed = 3;
    settings.random = 0.3;
    settings.every = 4;
    settings.fragments = 2;
    settings.late = 2;
    settings.steps = kFaultSteps;
    return settings;
  }
  static Ending run(const Layout& layout, std::size_t replicas, const ReplicaSet::Wrap& wrap,
                    const std::vector<Snapshot>& from = {}, std::int64_t first = 0) {
    ReplicaSet set(
        layout, replicas, [] { return make_method(settings()); }, wrap, from, fault_step(first));
    Ending run;
    std::vector<std::map<std::int64_t, Snapshot>> saved(replicas);
    run.errors = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
      std::mt19937_64 chance(number);
      std::normal_distribution<float> normal;
      std::vector<float> target(static_cast<std::size_t>(layout.size()));
      for (const Piece& piece : layout.pieces()) {
        for (auto at = piece.range.first; at < piece.range.last; ++at) {
          target[static_cast<std::size_t>(at)] = normal(chance);
        }
      }
      for (std::int64_t step = first; step < kFaultSteps; ++step) {
        replica.step(fault_step(step), target, kRate, step + 1 == kFaultSteps);
        if ((step + 1) % kSaveEvery == 0 || step + 1 == kFaultSteps) {
          saved[number][step + 1] = replica.save(fault_step(step + 1));
        }
      }
    });
    for (const auto& [steps, one] : saved[0]) {
      for (std::size_t number = 0; number < replicas; ++number) {
        if (saved[number].contains(steps)) run.saved[steps].push_back(saved[number].at(steps));
      }
    }
    return run;
  }
};

// Cuts links at random moments: all replicas stop, the checkpoints that all have made equal those
// of a run without faults, and a resume from the last of them ends in that run's bits.
TEST_P(Faults, CutInAnyPhaseLosesNothingAndForksNothing) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 chance(seed);
  const Layout layout = tiny_layout({20, 130, 64});
  const Ending whole = run(layout, kReplicas, {});
  ASSERT_THAT(whole.errors, Each(IsEmpty()));
  int faults = 0;
  for (int round = 0; round < kFaultRounds || faults < 6; ++round) {
    ASSERT_LT(round, kMostRounds) << faults << " were cut";
    const std::size_t victim = chance() % kReplicas;
    const auto calls = std::make_shared<std::atomic<int>>(static_cast<int>(chance() % 220));
    const Ending cut = run(layout, kReplicas, [&](std::size_t replica, std::size_t, auto link) {
      if (replica != victim) return link;
      return std::unique_ptr<net::Link>(
          std::make_unique<net::DyingLink>(std::move(link), calls, net::DyingLink::Death::cut));
    });
    for (const auto& [steps, saved] : cut.saved) {
      for (std::size_t number = 0; number < saved.size(); ++number) {
        EXPECT_TRUE(saved.size() < kReplicas || saved[number] == whole.saved.at(steps)[number]);
      }
    }
    if (*calls >= 0) continue;
    ++faults;
    std::int64_t last = 0;
    for (const auto& [steps, saved] : cut.saved) {
      if (saved.size() == kReplicas) last = steps;
    }
    if (last == kFaultSteps) continue;
    const Ending again = last == 0 ? run(layout, kReplicas, {})
                                   : run(layout, kReplicas, {}, cut.saved.at(last), last);
    ASSERT_THAT(again.errors, Each(IsEmpty()));
    EXPECT_EQ(again.saved.at(kFaultSteps), whole.saved.at(kFaultSteps)) << "from step " << last;
  }
}

INSTANTIATE_TEST_SUITE_P(, Faults, testing::ValuesIn(method_names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace strait::sync
