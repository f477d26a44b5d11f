#include "launcher/run/checkpoint_downloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "framework/store/checkpoint.h"
#include "framework/store/step_folders.h"
#include "tests/launcher/hosts/transfer_rig.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;
using transfer::TransferAgentOptions;
using Shards = std::vector<plan::WrittenShard>;

// A run whose processes write their shards on other hosts.
struct RemoteRun {
  explicit RemoteRun(const TransferAgentOptions& options = {}, std::size_t hosts = 1)
      : rig(hosts, options) {}

  std::unique_ptr<CheckpointDownloader> downloader(
      std::optional<std::int64_t> keep = 2, store::Part fetched = store::Part::all,
      store::Part awaited = store::Part::all,
      std::chrono::seconds stall_timeout = std::chrono::minutes(15)) {
    std::vector<CheckpointTable::Host> hosts;
    for (const auto& host : rig.hosts) {
      const std::string name = hosts.empty() ? "h0" : "h1";
      hosts.push_back({name, host->name, host->directory / "run", host->directory / "memory"});
    }
    table = std::make_unique<CheckpointTable>(CheckpointTable::Settings{here(), keep, fetched},
                                              std::move(hosts), rig.launcher.agent.get());
    return std::make_unique<CheckpointDownloader>(
        *table, CheckpointDownloader::Settings{awaited, stall_timeout});
  }

  // Writes a shard on each of these hosts and the manifest here; returns what the downloader gets.
  Shards commit(std::int64_t step, const std::vector<std::size_t>& hosts = {0}) {
    Shards shards;
    store::Manifest manifest;
    manifest.step = static_cast<store::Step>(step);
    for (const std::size_t host : hosts) {
      const auto stage = static_cast<std::int64_t>(host);
      std::vector<std::string> names = {store::shard_name(stage, 0)};
      if (with_weights) names.push_back(store::weights_name(stage, 0));
      for (const std::string& name : names) {
        manifest.files.push_back(write(step, host, name));
        shards.push_back({manifest.files.back(), {}, host});
      }
    }
    store::commit_checkpoint(place(here(), step), manifest, {}, store::Shards::elsewhere);
    return shards;
  }

  store::ShardFile write(std::int64_t step, std::size_t host, const std::string& name) {
    const transfer::TransferHost& writer = *rig.hosts.at(host);
    const fs::path there = place(writer.directory / "run", step) / name;
    fs::create_directories(there.parent_path());
    const std::size_t seed = static_cast<std::size_t>(step) * 100 + host * 10 + name.size() % 10;
    ScratchDirectory::write(there, transfer::random_bytes(100'000, seed));
    auto stat = rig.launcher.agent->stat(writer.name, there);
    const transfer::ChunkTable written = get_soon(stat);
    return {name, written.size, written.whole};
  }

  std::vector<std::int64_t> complete(store::Part part = store::Part::all) const {
    std::vector<std::int64_t> steps;
    for (const auto& one : store::list_checkpoints(here(), store::Verify::hashes, part).complete) {
      steps.push_back(number(one.manifest.step));
    }
    return steps;
  }

  static fs::path place(const fs::path& run, std::int64_t step) {
    return store::checkpoint_directory(run, static_cast<store::Step>(step));
  }
  transfer::TransferHost& host() { return *rig.hosts[0]; }
  fs::path here() const { return rig.launcher.directory / "run"; }

  transfer::TransferRig rig;
  std::unique_ptr<CheckpointTable> table;
  bool with_weights = false;  // in a file of their own, as every stage writes them
};

bool never(const CheckpointDownloader::Remaining& /*remaining*/) { return false; }

TEST(CheckpointDownloader, DownloadsFirstAndLastOfManyCommits) {
  RemoteRun run;
  std::vector<Shards> shards;
  for (std::int64_t step = 1; step <= 4; ++step) shards.push_back(run.commit(step));
  const auto downloader = run.downloader();
  for (std::int64_t step = 1; step <= 4; ++step) {
    downloader->add(static_cast<store::Step>(step), shards[static_cast<std::size_t>(step) - 1]);
  }
  EXPECT_EQ(downloader->finish(never).missing, "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(4, testing::AnyOf(1, 2, 3)));
}

TEST(CheckpointDownloader, DownloadsTwoCheckpoints) {
  RemoteRun run;
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, first);
  downloader->add(store::Step{6}, second);
  EXPECT_EQ(downloader->finish(never).missing, "");
  EXPECT_THAT(run.complete(), testing::ElementsAre(6, 3));
}

TEST(CheckpointDownloader, PrunesOnlyWithKeepLimit) {
  RemoteRun run;
  for (const std::int64_t step : {1, 2, 3}) {
    const auto downloader = run.downloader(std::nullopt);
    downloader->add(static_cast<store::Step>(step), run.commit(step));
    EXPECT_EQ(downloader->finish(never).missing, "");
  }
  EXPECT_THAT(run.complete(), testing::ElementsAre(3, 2, 1));
}

TransferAgentOptions one_chunk() {
  TransferAgentOptions slow;
  slow.download_bytes_per_second = 1;  // one chunk at once, the next in days
  return slow;
}

TEST(CheckpointDownloader, ReportsRemainingBytesAndStopsWaiting) {
  RemoteRun run(one_chunk());
  const auto first = run.commit(3);
  const auto second = run.commit(6);
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, first);
  downloader->add(store::Step{6}, second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  CheckpointDownloader::Remaining remaining;
  const auto enough = [&](const CheckpointDownloader::Remaining& now) {
    remaining = now;
    return now.bytes <= 100'000 || std::chrono::steady_clock::now() > deadline;
  };
  const std::string missing = downloader->finish(enough).missing;
  EXPECT_EQ(remaining.step, store::Step{6});
  EXPECT_EQ(remaining.bytes, 100'000U);
  EXPECT_THAT(missing, testing::HasSubstr("100.0 kB of checkpoint 6 stay on the hosts"));
}

// A download that is slower than commits: the disks of hosts must not fill meanwhile.
TEST(CheckpointDownloader, PrunesSkippedCheckpointsWhileOneIsDownloaded) {
  RemoteRun run(one_chunk());
  const auto downloader = run.downloader();
  for (std::int64_t step = 1; step <= 9; ++step) {
    downloader->add(static_cast<store::Step>(step), run.commit(step));
  }
  const auto on = [](const fs::path& directory) {
    std::vector<std::int64_t> steps;
    for (const auto& folder : store::step_folders(directory)) steps.push_back(number(folder.step));
    return steps;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const fs::path there = run.host().directory / "run";
  downloader->finish([&](const CheckpointDownloader::Remaining&) {
    return on(there).size() <= 3 || std::chrono::steady_clock::now() > deadline;
  });
  // The first may have come in its one chunk, and the next one is whichever was the newest then.
  EXPECT_THAT(on(there), testing::ElementsAre(9, 8, testing::Lt(8)));
  EXPECT_THAT(on(run.here()),
              testing::AllOf(testing::IsSupersetOf({9, 8, 1}), testing::SizeIs(testing::Le(4U))));
  EXPECT_THAT(downloader->take_warnings(), testing::IsEmpty());
}

// Neither a commit nor a finished download takes it from the hosts, which alone have it.
TEST(CheckpointDownloader, NewestKnownToBeGoodStaysThoughItWasSkipped) {
  const auto on = [](const fs::path& directory) {
    std::vector<std::int64_t> steps;
    for (const auto& folder : store::step_folders(directory)) steps.push_back(number(folder.step));
    return steps;
  };
  const auto run_with = [&](const TransferAgentOptions& options, auto judge) {
    RemoteRun run(options);
    const auto downloader = run.downloader();
    for (std::int64_t step = 1; step <= 9; ++step) {
      if (step == 5) run.table->judge(store::Step{4}, {});
      downloader->add(static_cast<store::Step>(step), run.commit(step));
    }
    judge(run, *downloader);
    EXPECT_THAT(run.table->prune(store::PruneTime::after_commit).left, testing::IsEmpty());
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  run_with(one_chunk(), [&](RemoteRun& run, CheckpointDownloader& downloader) {
    const fs::path there = run.host().directory / "run";
    downloader.finish([&](const CheckpointDownloader::Remaining&) {
      return on(there).size() <= 4 || std::chrono::steady_clock::now() > deadline;
    });
    // The last is the one that is downloaded, unless that has ended.
    EXPECT_THAT(on(there), testing::AnyOf(testing::ElementsAre(9, 8, 4),
                                          testing::ElementsAre(9, 8, 4, testing::AnyOf(1, 2, 3))));
    EXPECT_THAT(on(run.here()), testing::Contains(4));
  });
  run_with({}, [&](RemoteRun& run, CheckpointDownloader& downloader) {
    EXPECT_EQ(downloader.finish(never).missing, "");
    EXPECT_THAT(on(run.here()), testing::Contains(4));
    const fs::path there = run.host().directory / "run";
    while (on(there).size() > 4 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_THAT(on(there), testing::Contains(4));
  });
}

TEST(CheckpointDownloader, GivesUpWhenNothingComes) {
  RemoteRun run(one_chunk());
  const auto downloader =
      run.downloader(2, store::Part::all, store::Part::all, std::chrono::seconds(1));
  for (const std::int64_t step : {3, 6}) {
    downloader->add(static_cast<store::Step>(step), run.commit(step));
  }
  const auto finished = downloader->finish(never);
  EXPECT_EQ(finished.code, base::ExitCode::stalled);
  EXPECT_THAT(finished.missing, testing::HasSubstr("of checkpoint 6 stay on the hosts"));
  EXPECT_THAT(finished.missing, testing::HasSubstr("no data for 1 s"));
}

TEST(CheckpointDownloader, DoesNotWaitForHostThatLeftRun) {
  RemoteRun run(one_chunk(), 2);
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
  EXPECT_THAT(downloader->finish(never).missing, testing::HasSubstr(store::shard_name(0, 0)));
  EXPECT_THAT(downloader->take_warnings(),
              testing::ElementsAre(testing::HasSubstr("checkpoint 3")));
  // The next one is downloaded all the same.
  downloader->add(store::Step{6}, run.commit(6));
  EXPECT_EQ(downloader->finish(never).missing, "");
}

TEST(CheckpointDownloader, AwaitsWeightsOnlyBehindLastStep) {
  RemoteRun run(one_chunk());
  run.with_weights = true;
  const auto shards = run.commit(3);
  const auto downloader = run.downloader(2, store::Part::all, store::Part::weights);
  downloader->add(store::Step{3}, shards);
  const auto finished = downloader->finish(never);  // while the state is being fetched
  EXPECT_EQ(finished.missing, "");
  EXPECT_EQ(finished.left,
            "optimizer state and caches of checkpoint 3 (100.0 kB) stay on h0, where `strait "
            "resume` finds them");
  EXPECT_THAT(run.complete(store::Part::weights), testing::ElementsAre(3));
  EXPECT_THAT(run.complete(), testing::IsEmpty());
  EXPECT_THAT(downloader->take_warnings(), testing::IsEmpty());
}

TEST(CheckpointDownloader, FetchesNoMoreThanAskedForAndPrunesAllTheSame) {
  for (const store::Part part : {store::Part::weights, store::Part::none}) {
    RemoteRun run;
    run.with_weights = true;
    const auto downloader = run.downloader(2, part, part);
    for (const std::int64_t step : {1, 2, 3, 4}) {
      downloader->add(static_cast<store::Step>(step), run.commit(step));
      const auto finished = downloader->finish(never);
      EXPECT_EQ(finished.missing, "");
      EXPECT_THAT(finished.left, testing::HasSubstr("stay on h0"));
    }
    EXPECT_THAT(run.complete(part), testing::ElementsAre(4, 3));
    EXPECT_THAT(run.complete(), testing::IsEmpty());
    const bool weights = part == store::Part::weights;
    EXPECT_EQ(fs::exists(run.place(run.here(), 4) / store::weights_name(0, 0)), weights);
    EXPECT_FALSE(fs::exists(run.place(run.here(), 4) / store::shard_name(0, 0)));
  }
}

// Whether trying again can help decides if a restart may go back to an older checkpoint.
TEST(CheckpointDownloader, DistinguishesMissingFromUnreachableShards) {
  RemoteRun run({}, 2);
  const auto shards = run.commit(3, {0, 1});
  const auto finished = [&] {
    const auto downloader = run.downloader();
    downloader->add(store::Step{3}, shards);
    return downloader->finish(never);
  };
  run.rig.hosts[1]->stop();
  EXPECT_EQ(finished().code, base::ExitCode::peer_lost);
  fs::remove(run.place(run.host().directory / "run", 3) / store::shard_name(0, 0));
  fs::remove(run.place(run.here(), 3) / store::shard_name(0, 0));
  EXPECT_EQ(finished().code, base::ExitCode::corrupt);
}

TEST(CheckpointDownloader, NamesShardThatChangedSinceWritten) {
  RemoteRun run;
  const auto shards = run.commit(3);
  const fs::path there = run.place(run.host().directory / "run", 3) / store::shard_name(0, 0);
  ScratchDirectory::write(there, transfer::random_bytes(100'000, 77));
  const auto downloader = run.downloader();
  downloader->add(store::Step{3}, shards);
  const auto finished = downloader->finish(never);
  EXPECT_THAT(finished.missing,
              testing::ContainsRegex("of host h0 .*has changed since it was written"));
  EXPECT_EQ(finished.code, base::ExitCode::corrupt);
  EXPECT_THAT(downloader->take_warnings(),
              testing::ElementsAre(testing::HasSubstr("checkpoint 3")));
  EXPECT_THAT(run.complete(), testing::IsEmpty());
}

}  // namespace
}  // namespace strait::run
