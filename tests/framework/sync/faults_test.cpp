#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "framework/sync/methods.h"
#include "tests/framework/sync/replica_set.h"

namespace strait::sync {
namespace {

using testing::Each;
using testing::IsEmpty;

constexpr std::int64_t kSteps = 14;
constexpr std::int64_t kSaveEvery = 4;
constexpr float kRate = 0.05F;

store::Step step_of(std::int64_t number) { return static_cast<store::Step>(number); }

// Dies after so many sends and receives of all links that share the count, before or after what it
// is asked for: a process that is killed, or a path that is cut, in the middle of whatever it was.
class DyingLink final : public net::Link {
 public:
  DyingLink(std::unique_ptr<net::Link> link, std::shared_ptr<std::atomic<int>> calls)
      : link_(std::move(link)), calls_(std::move(calls)) {}
  void send(net::Frame frame) override {
    count();
    link_->send(std::move(frame));
    count();
  }
  net::Frame receive() override {
    count();
    net::Frame frame = link_->receive();
    count();
    return frame;
  }
  std::optional<net::Frame> receive_until(std::chrono::steady_clock::time_point when) override {
    return link_->receive_until(when);
  }
  bool flush(std::chrono::steady_clock::time_point when) override { return link_->flush(when); }
  void abort(const net::LinkError& cause) override { link_->abort(cause); }
  net::LinkState state() const override { return link_->state(); }

 private:
  void count() {
    if (--*calls_ < 0) link_->abort(net::LinkError(net::LinkError::Kind::lost, "cut by the test"));
  }

  std::unique_ptr<net::Link> link_;
  std::shared_ptr<std::atomic<int>> calls_;
};

struct Ending {
  std::vector<std::string> said;
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
    settings.warmup = 5;
    settings.steps = kSteps;
    return settings;
  }
  static Ending run(const Layout& layout, std::size_t replicas, const ReplicaSet::Wrap& wrap,
                    const std::vector<Snapshot>& from = {}, std::int64_t first = 0) {
    ReplicaSet set(
        layout, replicas, [] { return make_method(settings()); }, wrap, from, step_of(first));
    Ending run;
    std::vector<std::map<std::int64_t, Snapshot>> saved(replicas);
    run.said = set.in_parallel([&](std::size_t number, TinyReplica& replica) {
      std::mt19937_64 chance(number);
      std::normal_distribution<float> normal;
      std::vector<float> target(static_cast<std::size_t>(layout.size()));
      for (const Piece& piece : layout.pieces()) {
        for (auto at = piece.range.first; at < piece.range.last; ++at) {
          target[static_cast<std::size_t>(at)] = normal(chance);
        }
      }
      for (std::int64_t step = first; step < kSteps; ++step) {
        replica.step(step_of(step), target, kRate, step + 1 == kSteps);
        if ((step + 1) % kSaveEvery == 0 || step + 1 == kSteps) {
          saved[number][step + 1] = replica.save(step_of(step + 1));
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

// Whatever is cut, whenever: everybody stops, checkpoints that all have made are those of a run
// without faults, and going on from the last of them gives that run's end, bit for bit.
TEST_P(Faults, ACutInTheMiddleOfAnyPhaseLosesNothingAndForksNothing) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 chance(seed);
  const Layout layout = tiny_layout({20, 130, 64});
  constexpr std::size_t kReplicas = 3;
  const Ending whole = run(layout, kReplicas, {});
  ASSERT_THAT(whole.said, Each(IsEmpty()));
  int faults = 0;
  for (int round = 0; round < 25; ++round) {
    const std::size_t victim = chance() % kReplicas;
    const auto calls = std::make_shared<std::atomic<int>>(static_cast<int>(chance() % 220));
    const Ending cut = run(layout, kReplicas, [&](std::size_t replica, std::size_t, auto link) {
      if (replica != victim) return link;
      return std::unique_ptr<net::Link>(std::make_unique<DyingLink>(std::move(link), calls));
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
    if (last == kSteps) continue;
    const Ending again = last == 0 ? run(layout, kReplicas, {})
                                   : run(layout, kReplicas, {}, cut.saved.at(last), last);
    ASSERT_THAT(again.said, Each(IsEmpty()));
    EXPECT_EQ(again.saved.at(kSteps), whole.saved.at(kSteps)) << "from step " << last;
  }
  EXPECT_GT(faults, 5);
}

INSTANTIATE_TEST_SUITE_P(, Faults, testing::ValuesIn(method_names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace strait::sync
