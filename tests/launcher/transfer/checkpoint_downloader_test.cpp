#include "launcher/transfer/checkpoint_downloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "framework/store/checkpoint.h"
#include "tests/launcher/transfer/transfer_rig.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

// A run whose only process writes its shards on a keeper's host.
struct FarRun {
  explicit FarRun(const TransferAgentOptions& options = {}, std::size_t keepers = 1)
      : rig(keepers, options) {}

  std::unique_ptr<CheckpointDownloader> courier() {
    std::vector<CheckpointDownloader::Host> hosts;
    for (const auto& keeper : rig.keepers) {
      const std::string name = hosts.empty() ? "h0" : "h1";
      hosts.push_back({name, keeper->name, keeper->directory / "run"});
    }
    return std::make_unique<CheckpointDownloader>(*rig.launcher.porter, std::move(hosts),
                                               CheckpointDownloader::Settings{here(), 2});
  }

  // A shard lies on each of the hosts, the manifest here; says what a courier is told of it.
  std::vector<CheckpointDownloader::Shard> commit(std::int64_t step,
                                               const std::vector<std::size_t>& hosts = {0}) {
    std::vector<CheckpointDownloader::Shard> shards;
    store::Manifest manifest;
    manifest.step = static_cast<store::Step>(step);
    for (const std::size_t host : hosts) {
      const TransferHost& keeper = *rig.keepers.at(host);
      const std::string name = store::shard_name(static_cast<std::int64_t>(host), 0);
      const fs::path there = place(keeper.directory / "run", step) / name;
      fs::create_directories(there.parent_path());
      const std::size_t seed = static_cast<std::size_t>(step) * 10 + host;
      store::write_bytes(there, random_bytes(100'000, seed));
      auto seen = rig.launcher.porter->look(keeper.name, there);
      const ChunkTable table = soon(seen);
      manifest.files.push_back({name, table.size, table.whole});
      shards.push_back({manifest.files.back(), host});
    }
    store::commit_checkpoint(place(here(), step), manifest, {}, store::Shards::elsewhere);
    return shards;
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
  TransferHost& host() { return *rig.keepers[0]; }
  fs::path here() const { return rig.launcher.directory / "run"; }

  TransferRig rig;
};

bool for_ever(const CheckpointDownloader::Left& /*left*/) { return false; }

TEST(CheckpointDownloader, TheFirstAndTheLastComeHomeHoweverFastTheyFollow) {
  FarRun run;
  std::vector<std::vector<CheckpointDownloader::Shard>> shards;
  for (std::int64_t step = 1; step <= 4; ++step) shards.push_back(run.commit(step));
  const auto courier = run.courier();
  for (std::int64_t step = 1; step <= 4; ++step) {
    courier->committed(static_cast<store::Step>(step), shards[static_cast<std::size_t>(step) - 1]);
  }
  EXPECT_EQ(courier->finish(for_ever), "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(4, testing::AnyOf(1, 2, 3)));
}

TEST(CheckpointDownloader, TwoCheckpointsAreBothHome) {
  FarRun run;
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto courier = run.courier();
  courier->committed(store::Step{3}, first);
  courier->committed(store::Step{6}, second);
  EXPECT_EQ(courier->finish(for_ever), "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(6, 3));
}

TEST(CheckpointDownloader, WhoWaitsIsToldHowMuchIsLeftAndMayGiveUp) {
  TransferAgentOptions slow;
  slow.download_bytes_per_second = 1;  // the first chunk comes at once, the next tomorrow
  FarRun run(slow);
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto courier = run.courier();
  courier->committed(store::Step{3}, first);
  courier->committed(store::Step{6}, second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  CheckpointDownloader::Left left;
  const std::string missing = courier->finish([&](const CheckpointDownloader::Left& now) {
    left = now;
    return now.bytes <= 100'000 || std::chrono::steady_clock::now() > deadline;
  });
  EXPECT_EQ(left.step, store::Step{6});
  EXPECT_EQ(left.bytes, 100'000U);
  EXPECT_THAT(missing, testing::HasSubstr("100.0 kB of checkpoint 6 stay on the hosts"));
}

TEST(CheckpointDownloader, AHostThatTakesNoPartAnyMoreIsNotWaitedFor) {
  TransferAgentOptions slow;
  slow.download_bytes_per_second = 1;  // the first chunk comes at once, the next tomorrow
  FarRun run(slow, 2);
  const auto first = run.commit(3, {0, 1});
  const auto second = run.commit(6, {0});
  const auto courier = run.courier();
  courier->committed(store::Step{3}, first);
  courier->committed(store::Step{6}, second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<std::string> troubles;
  while (troubles.empty() && std::chrono::steady_clock::now() < deadline) {
    troubles = courier->take_troubles();
    std::this_thread::yield();
  }
  EXPECT_THAT(troubles, testing::ElementsAre(
                            testing::AllOf(testing::HasSubstr("checkpoint 3 is not complete"),
                                           testing::HasSubstr("of host h1 was not waited for"),
                                           testing::Not(testing::HasSubstr("h0")))));
}

TEST(CheckpointDownloader, AShardThatIsNotWhatWasWrittenIsNamed) {
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
}  // namespace strait::transfer
