#include "launcher/ship/checkpoint_courier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/checkpoint.h"
#include "tests/launcher/ship/ship_rig.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

// A run whose only process writes its shards on a keeper's host.
struct FarRun {
  explicit FarRun(const PorterOptions& options = {}) : rig(1, options) {}

  std::unique_ptr<CheckpointCourier> courier() {
    std::vector<CheckpointCourier::Host> hosts = {{"h0", host().name, host().directory / "run"}};
    return std::make_unique<CheckpointCourier>(*rig.launcher.porter, std::move(hosts),
                                               CheckpointCourier::Settings{here(), 2});
  }

  // The shard lies there, the manifest here; says what a courier is told of it.
  std::vector<CheckpointCourier::Shard> commit(std::int64_t step) {
    const std::string name = store::shard_name(0, 0);
    const fs::path there = place(host().directory / "run", step) / name;
    fs::create_directories(there.parent_path());
    store::write_bytes(there, random_bytes(100'000, static_cast<std::uint64_t>(step)));
    auto seen = rig.launcher.porter->look(host().name, there);
    const FileTable table = soon(seen);
    store::Manifest manifest;
    manifest.step = static_cast<store::Step>(step);
    manifest.files = {{name, table.size, table.whole}};
    store::commit_checkpoint(place(here(), step), manifest, {}, store::Shards::elsewhere);
    return {{manifest.files[0], 0}};
  }

  std::vector<std::int64_t> complete() const {
    std::vector<std::int64_t> steps;
    for (const auto& one : store::list_checkpoints(here(), store::Verify::hashes).complete) {
      steps.push_back(number(one.manifest.step));
    }
    return steps;
  }

  static fs::path place(const fs::path& run, std::int64_t step) {
    return store::checkpoint_directory(run, static_cast<store::Step>(step));
  }
  ShipHost& host() { return *rig.keepers[0]; }
  fs::path here() const { return rig.launcher.directory / "run"; }

  ShipRig rig;
};

bool for_ever(const CheckpointCourier::Left& /*left*/) { return false; }

TEST(CheckpointCourier, TheFirstAndTheLastComeHomeHoweverFastTheyFollow) {
  FarRun run;
  std::vector<std::vector<CheckpointCourier::Shard>> shards;
  for (std::int64_t step = 1; step <= 4; ++step) shards.push_back(run.commit(step));
  const auto courier = run.courier();
  for (std::int64_t step = 1; step <= 4; ++step) {
    courier->committed(static_cast<store::Step>(step), shards[static_cast<std::size_t>(step) - 1]);
  }
  EXPECT_EQ(courier->finish(for_ever), "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(4, testing::AnyOf(1, 2, 3)));
}

TEST(CheckpointCourier, TwoCheckpointsAreBothHome) {
  FarRun run;
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto courier = run.courier();
  courier->committed(store::Step{3}, first);
  courier->committed(store::Step{6}, second);
  EXPECT_EQ(courier->finish(for_ever), "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(6, 3));
}

TEST(CheckpointCourier, WhoWaitsIsToldHowMuchIsLeftAndMayGiveUp) {
  PorterOptions slow;
  slow.download_bytes_per_second = 1;  // the first piece comes at once, the next tomorrow
  FarRun run(slow);
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto courier = run.courier();
  courier->committed(store::Step{3}, first);
  courier->committed(store::Step{6}, second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  CheckpointCourier::Left left;
  const std::string missing = courier->finish([&](const CheckpointCourier::Left& now) {
    left = now;
    return now.bytes <= 100'000 || std::chrono::steady_clock::now() > deadline;
  });
  EXPECT_EQ(left.step, store::Step{6});
  EXPECT_EQ(left.bytes, 100'000U);
  EXPECT_THAT(missing, testing::HasSubstr("100.0 kB of checkpoint 6 stay on the hosts"));
}

TEST(CheckpointCourier, AShardThatIsNotWhatWasWrittenIsNamed) {
  FarRun run;
  const auto shards = run.commit(3);
  const fs::path there = run.place(run.host().directory / "run", 3) / store::shard_name(0, 0);
  store::write_bytes(there, random_bytes(100'000, 77));
  const auto courier = run.courier();
  courier->committed(store::Step{3}, shards);
  const std::string missing = courier->finish(for_ever);
  EXPECT_THAT(missing, testing::HasSubstr("on host h0 is not what was written"));
  EXPECT_THAT(courier->take_troubles(), testing::ElementsAre(testing::HasSubstr("checkpoint 3")));
  EXPECT_THAT(run.complete(), testing::IsEmpty());
}

}  // namespace
}  // namespace strait::launcher
