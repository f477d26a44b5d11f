#include "launcher/transfer/checkpoint_downloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "framework/store/checkpoint.h"
#include "tests/launcher/transfer/transfer_rig.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

// A run whose processes write their shards on other hosts.
struct RemoteRun {
  explicit RemoteRun(const TransferAgentOptions& options = {}, std::size_t hosts = 1)
      : rig(hosts, options) {}

  std::unique_ptr<CheckpointDownloader> downloader(std::optional<std::int64_t> keep = 2) {
    std::vector<CheckpointDownloader::Host> hosts;
    for (const auto& host : rig.hosts) {
      const std::string name = hosts.empty() ? "h0" : "h1";
      hosts.push_back({name, host->name, host->directory / "run"});
    }
    return std::make_unique<CheckpointDownloader>(*rig.launcher.agent, std::move(hosts),
                                                  CheckpointDownloader::Settings{here(), keep});
  }

  // Writes a shard on each of these hosts and the manifest here; returns what the downloader gets.
  std::vector<CheckpointDownloader::Shard> commit(std::int64_t step,
                                                  const std::vector<std::size_t>& hosts = {0}) {
    std::vector<CheckpointDownloader::Shard> shards;
    store::Manifest manifest;
    manifest.step = static_cast<store::Step>(step);
    for (const std::size_t host : hosts) {
      const TransferHost& writer = *rig.hosts.at(host);
      const std::string name = store::shard_name(static_cast<std::int64_t>(host), 0);
      const fs::path there = place(writer.directory / "run", step) / name;
      fs::create_directories(there.parent_path());
      const std::size_t seed = static_cast<std::size_t>(step) * 10 + host;
      store::write_bytes(there, random_bytes(100'000, seed));
      auto stat = rig.launcher.agent->stat(writer.name, there);
      const ChunkTable table = get_soon(stat);
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
  TransferHost& host() { return *rig.hosts[0]; }
  fs::path here() const { return rig.launcher.directory / "run"; }

  TransferRig rig;
};

bool never(const CheckpointDownloader::Remaining& /*remaining*/) { return false; }

TEST(CheckpointDownloader, DownloadsFirstAndLastOfManyCommits) {
  RemoteRun run;
  std::vector<std::vector<CheckpointDownloader::Shard>> shards;
  for (std::int64_t step = 1; step <= 4; ++step) shards.push_back(run.commit(step));
  const auto downloader = run.downloader();
  for (std::int64_t step = 1; step <= 4; ++step) {
    downloader->add(static_cast<store::Step>(step), shards[static_cast<std::size_t>(step) - 1]);
  }
  EXPECT_EQ(downloader->finish(never), "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(4, testing::AnyOf(1, 2, 3)));
}

TEST(CheckpointDownloader, DownloadsTwoCheckpoints) {
  RemoteRun run;
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, first);
  downloader->add(store::Step{6}, second);
  EXPECT_EQ(downloader->finish(never), "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(6, 3));
}

TEST(CheckpointDownloader, RemovesNothingUnlessToldHowManyToKeep) {
  RemoteRun run;
  for (const std::int64_t step : {1, 2, 3}) {
    const auto downloader = run.downloader(std::nullopt);
    downloader->add(static_cast<store::Step>(step), run.commit(step));
    EXPECT_EQ(downloader->finish(never), "");
  }
  EXPECT_THAT(run.complete(), testing::ElementsAre(3, 2, 1));
}

TEST(CheckpointDownloader, ReportsRemainingBytesAndStopsWaiting) {
  TransferAgentOptions slow;
  slow.download_bytes_per_second = 1;  // one chunk at once, the next in days
  RemoteRun run(slow);
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, first);
  downloader->add(store::Step{6}, second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  CheckpointDownloader::Remaining remaining;
  const std::string missing = downloader->finish([&](const CheckpointDownloader::Remaining& now) {
    remaining = now;
    return now.bytes <= 100'000 || std::chrono::steady_clock::now() > deadline;
  });
  EXPECT_EQ(remaining.step, store::Step{6});
  EXPECT_EQ(remaining.bytes, 100'000U);
  EXPECT_THAT(missing, testing::HasSubstr("100.0 kB of checkpoint 6 stay on the hosts"));
}

TEST(CheckpointDownloader, DoesNotWaitForHostThatLeftRun) {
  TransferAgentOptions slow;
  slow.download_bytes_per_second = 1;  // one chunk at once, the next in days
  RemoteRun run(slow, 2);
  const auto first = run.commit(3, {0, 1});
  const auto second = run.commit(6, {0});
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, first);
  downloader->add(store::Step{6}, second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<std::string> warnings;
  while (warnings.empty() && std::chrono::steady_clock::now() < deadline) {
    warnings = downloader->take_warnings();
    std::this_thread::yield();
  }
  EXPECT_THAT(warnings, testing::ElementsAre(
                            testing::AllOf(testing::HasSubstr("checkpoint 3 is incomplete"),
                                           testing::HasSubstr("of host h1 was not waited for"),
                                           testing::Not(testing::HasSubstr("h0")))));
}

TEST(CheckpointDownloader, SurvivesFolderWhereAFileOfItsNameStands) {
  RemoteRun run;
  const auto shards = run.commit(3);
  const fs::path place = run.place(run.here(), 3);
  fs::create_directories(place / (store::shard_name(0, 0) + ".part"));
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, shards);
  EXPECT_THAT(downloader->finish(never), testing::HasSubstr(store::shard_name(0, 0)));
  EXPECT_THAT(downloader->take_warnings(),
              testing::ElementsAre(testing::HasSubstr("checkpoint 3")));
  // The next one is downloaded all the same.
  downloader->add(store::Step{6}, run.commit(6));
  EXPECT_EQ(downloader->finish(never), "");
}

TEST(CheckpointDownloader, NamesShardThatChangedSinceWritten) {
  RemoteRun run;
  const auto shards = run.commit(3);
  const fs::path there = run.place(run.host().directory / "run", 3) / store::shard_name(0, 0);
  store::write_bytes(there, random_bytes(100'000, 77));
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, shards);
  const std::string missing = downloader->finish(never);
  EXPECT_THAT(missing, testing::HasSubstr("on host h0 has changed since it was written"));
  EXPECT_THAT(downloader->take_warnings(),
              testing::ElementsAre(testing::HasSubstr("checkpoint 3")));
  EXPECT_THAT(run.complete(), testing::IsEmpty());
}

}  // namespace
}  // namespace strait::transfer
