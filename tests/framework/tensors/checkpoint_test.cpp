#include "framework/store/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>

#include "framework/tensors/safetensors_reader.h"
#include "framework/tensors/safetensors_writer.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/framework/store/system_faults.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::tensors {
namespace {

namespace fs = std::filesystem;
using store::complete_steps;

// Two stages' shards and the manifest; every tensor is filled with the step.
void save(const fs::path& run, std::int64_t step, const std::function<void()>& may_commit = {}) {
  const fs::path path = store::checkpoint_directory(run, store::Step{step});
  store::Manifest manifest;
  manifest.run_id = "run";
  manifest.step = store::Step{step};
  for (const std::int64_t stage : {0, 1}) {
    const at::Tensor value = at::full({50}, static_cast<float>(step));
    manifest.files.push_back(write_shard(
        path, store::shard_name(stage, 0),
        std::vector<NamedTensor>{{"layer." + std::to_string(stage), value}, {"tied", value}}));
    manifest.layout.push_back({stage, 0, stage, stage});
  }
  store::commit_checkpoint(path, manifest, may_commit);
}

void expect_holds(const store::Checkpoint& checkpoint) {
  const CheckpointReader reader(checkpoint.path);
  const auto step = static_cast<float>(number(reader.manifest().step));
  for (const char* name : {"layer.0", "layer.1", "tied"}) {
    EXPECT_TRUE(at::equal(reader.read(name), at::full({50}, step))) << name;
  }
}

TEST(Checkpoint, IsReadByGlobalNamesAcrossShards) {
  const ScratchDirectory run;
  save(run.path(), 7);
  const CheckpointReader reader(store::checkpoint_directory(run.path(), store::Step{7}));
  EXPECT_THAT(reader.names(), testing::ElementsAre("layer.0", "layer.1", "tied"));
  EXPECT_EQ(reader.find("layer.2"), nullptr);
  EXPECT_NE(reader.shard(store::shard_name(1, 0))->find("layer.1"), nullptr);
  EXPECT_EQ(reader.shard(store::shard_name(2, 0)), nullptr);
  store::expect_store_error(store::StoreError::Kind::mismatch, {"step-7", "\"layer.2\""},
                            [&] { reader.read("layer.2"); });
  expect_holds({store::checkpoint_directory(run.path(), store::Step{7}), {}});
}

TEST(Checkpoint, ListsCompleteOnesNewestFirstAndNothingElse) {
  const ScratchDirectory run;
  EXPECT_TRUE(store::list_checkpoints(run.path()).complete.empty());
  EXPECT_FALSE(store::choose_checkpoint(run.path()).has_value());
  for (const std::int64_t step : {100, 20, 3}) save(run.path(), step);
  for (const char* name : {"step-", "step-x", "step-007", "step--1", "latest", "step-5.aside-1"}) {
    fs::create_directories(run.path() / "checkpoints" / name);
  }
  EXPECT_THAT(complete_steps(run.path()), testing::ElementsAre(100, 20, 3));
  EXPECT_TRUE(store::list_checkpoints(run.path()).unusable.empty());
}

TEST(Checkpoint, IsNeverWrittenIntoOnceComplete) {
  const ScratchDirectory run;
  save(run.path(), 7);
  const fs::path path = store::checkpoint_directory(run.path(), store::Step{7});
  store::expect_store_error(store::StoreError::Kind::busy, {"step-7", "complete already"}, [&] {
    write_shard(path, "late.safetensors", std::vector<NamedTensor>{});
  });
  store::Manifest manifest;
  manifest.step = store::Step{7};
  store::expect_store_error(store::StoreError::Kind::busy, {"step-7"},
                            [&] { store::commit_checkpoint(path, manifest); });
  EXPECT_THROW(
      store::commit_checkpoint(store::checkpoint_directory(run.path(), store::Step{8}), manifest),
      std::invalid_argument);
}

TEST(Checkpoint, DoesNotExistWhenTheLastQuestionForbidsIt) {
  const ScratchDirectory run;
  EXPECT_THROW(save(run.path(), 7, [] { throw std::runtime_error("fenced"); }), std::runtime_error);
  EXPECT_TRUE(complete_steps(run.path()).empty());
  save(run.path(), 7);
  EXPECT_THAT(complete_steps(run.path()), testing::ElementsAre(7));
}

TEST(Checkpoint, GivenUpIsTakenBackShardByShardButNeverOnceComplete) {
  const ScratchDirectory run;
  const fs::path path = store::checkpoint_directory(run.path(), store::Step{1});
  const std::vector<NamedTensor> tensors{{"a", at::ones({9})}};
  write_shard(path, store::shard_name(0, 0), tensors);
  write_shard(path, store::shard_name(1, 0), tensors);
  store::withdraw_shard(path, store::shard_name(0, 0));
  EXPECT_FALSE(fs::exists(path / store::shard_name(0, 0)));
  EXPECT_TRUE(fs::exists(path / store::shard_name(1, 0)));
  store::withdraw_shard(path, store::shard_name(1, 0));
  EXPECT_FALSE(fs::exists(path));
  store::withdraw_shard(path, store::shard_name(1, 0));  // it never came to be

  save(run.path(), 2);
  store::withdraw_shard(store::checkpoint_directory(run.path(), store::Step{2}),
                        store::shard_name(0, 0));
  EXPECT_THAT(complete_steps(run.path(), store::Verify::hashes), testing::ElementsAre(2));
}

TEST(Checkpoint, RefusesToCommitAShardThatIsMissingOrCut) {
  const ScratchDirectory run;
  const fs::path path = store::checkpoint_directory(run.path(), store::Step{7});
  store::Manifest manifest;
  manifest.step = store::Step{7};
  manifest.files = {
      write_shard(path, "a.safetensors", std::vector<NamedTensor>{{"a", at::ones({9})}})};
  fs::resize_file(path / "a.safetensors", manifest.files[0].size - 1);
  store::expect_store_error(store::StoreError::Kind::corrupt,
                            {"a.safetensors", "the manifest says"},
                            [&] { store::commit_checkpoint(path, manifest); });
  fs::remove(path / "a.safetensors");
  store::expect_store_error(store::StoreError::Kind::corrupt, {"a.safetensors", "is missing"},
                            [&] { store::commit_checkpoint(path, manifest); });
}

TEST(Checkpoint, FindsOneFlippedBitAnywhereAndFallsBackNamingBoth) {
  const ScratchDirectory run;
  save(run.path(), 100);
  save(run.path(), 200);
  const fs::path newest = store::checkpoint_directory(run.path(), store::Step{200});
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(newest)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 3U);
  std::sort(files.begin(), files.end());
  const std::uint64_t seed = 99;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const fs::path& file = files[random() % files.size()];
    const std::string good = ScratchDirectory::read(file);
    std::string bad = good;
    const std::size_t byte = random() % bad.size();
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << random() % 8));
    ScratchDirectory::write(file, bad);
    const auto chosen = store::choose_checkpoint(run.path());
    ASSERT_TRUE(chosen.has_value());
    EXPECT_EQ(number(chosen->checkpoint.manifest.step), 100) << file << " byte " << byte;
    EXPECT_THAT(chosen->warning, testing::HasSubstr("step-100"));
    EXPECT_THAT(chosen->warning, testing::HasSubstr(file.filename().string()));
    ScratchDirectory::write(file, good);
  }
  const auto chosen = store::choose_checkpoint(run.path());
  EXPECT_EQ(number(chosen->checkpoint.manifest.step), 200);
  EXPECT_EQ(chosen->warning, "");
}

TEST(Checkpoint, FindsShardsCutExtendedSwappedZeroedAndGone) {
  const ScratchDirectory run;
  save(run.path(), 7);
  const fs::path path = store::checkpoint_directory(run.path(), store::Step{7});
  const fs::path first = path / store::shard_name(0, 0);
  const fs::path second = path / store::shard_name(1, 0);
  const std::string good = ScratchDirectory::read(first);
  const std::string other = ScratchDirectory::read(second);
  const auto refused = [&](const std::string& word) {
    store::expect_store_error(store::StoreError::Kind::corrupt, {path.string(), word},
                              [&] { CheckpointReader reader(path); });
    ScratchDirectory::write(first, good);
    ScratchDirectory::write(second, other);
  };
  ScratchDirectory::write(first, good.substr(0, good.size() - 1));
  EXPECT_TRUE(complete_steps(run.path()).empty());
  refused("the manifest says");
  ScratchDirectory::write(first, good + "x");
  refused("the manifest says");
  ScratchDirectory::write(first, other);
  ScratchDirectory::write(second, good);
  refused("is damaged");
  ScratchDirectory::write(first, good.substr(0, good.size() - 64) + std::string(64, '\0'));
  refused("is damaged");
  fs::remove(first);
  refused("is missing");
  fs::rename(path, store::checkpoint_directory(run.path(), store::Step{8}));
  store::expect_store_error(store::StoreError::Kind::corrupt, {"step-8", "of step 7"}, [&] {
    store::open_checkpoint(store::checkpoint_directory(run.path(), store::Step{8}),
                           store::Verify::sizes);
  });
}

TEST(Checkpoint, ComparesShardWithManifestWhileItIsCopied) {
  const ScratchDirectory run;
  save(run.path(), 7);
  const fs::path path = store::checkpoint_directory(run.path(), store::Step{7});
  const store::ShardFile shard =
      store::open_checkpoint(path, store::Verify::manifest).files.front();
  const fs::path from = path / shard.name;
  const fs::path to = run / "copy";
  store::copy_shard(from, to, shard);
  const std::string good = ScratchDirectory::read(from);
  EXPECT_EQ(ScratchDirectory::read(to), good);
  std::string changed = good;
  changed.back() ^= 1;
  for (const std::string& damaged : {changed, good.substr(0, good.size() - 1), good + "x"}) {
    ScratchDirectory::write(from, damaged);
    store::expect_store_error(store::StoreError::Kind::corrupt, {from.string(), "is damaged"},
                              [&] { store::copy_shard(from, to, shard); });
  }
}

TEST(Checkpoint, SaysWhenNoneIsRightInsteadOfStartingAfresh) {
  const ScratchDirectory run;
  save(run.path(), 7);
  ScratchDirectory::write(
      store::checkpoint_directory(run.path(), store::Step{7}) / store::shard_name(0, 0), "damaged");
  store::expect_store_error(store::StoreError::Kind::corrupt,
                            {"no checkpoint", "stage-0.replica-0"},
                            [&] { store::choose_checkpoint(run.path()); });
}

TEST(Checkpoint, KilledAtAnySystemCallOfASaveLeavesTheOldOrTheNewState) {
  bool finished = false;
  int new_states = 0;
  for (int call = 0; !finished; ++call) {
    ASSERT_LT(call, 200);
    RecordProperty("calls", call);
    const ScratchDirectory run;
    save(run.path(), 1);
    finished = store::survives_death_at(call, [&] { save(run.path(), 2); });
    const auto chosen = store::choose_checkpoint(run.path());
    ASSERT_TRUE(chosen.has_value()) << "killed at call " << call;
    const std::int64_t step = number(chosen->checkpoint.manifest.step);
    if (step == 2) ++new_states;
    EXPECT_TRUE(step == 1 || step == 2);
    EXPECT_TRUE(!finished || step == 2);
    if (step == 1) {
      EXPECT_FALSE(chosen->warning.empty() &&
                   fs::exists(store::checkpoint_directory(run.path(), store::Step{2})));
    }
    expect_holds(chosen->checkpoint);
    // The same step can be saved again over what the dead process left.
    if (step == 1) {
      save(run.path(), 2);
      EXPECT_THAT(complete_steps(run.path(), store::Verify::hashes), testing::ElementsAre(2, 1));
    }
  }
  EXPECT_GE(new_states, 1);
}

TEST(Checkpoint, AnyFailingCallVoidsTheAttemptAndKeepsTheOldState) {
  for (const store::SystemCall kind : {store::SystemCall::write, store::SystemCall::fsync,
                                       store::SystemCall::rename, store::SystemCall::fallocate}) {
    for (int call = 0;; ++call) {
      ASSERT_LT(call, 100);
      RecordProperty("calls of kind " + std::to_string(static_cast<int>(kind)), call);
      const ScratchDirectory run;
      save(run.path(), 1);
      bool failed = false;
      store::with_fault({.call = kind, .after = call, .error = EIO, .once = true}, [&] {
        try {
          save(run.path(), 2);
        } catch (const store::StoreError& error) {
          failed = true;
          EXPECT_EQ(error.kind(), store::StoreError::Kind::storage_io) << error.what();
        }
      });
      EXPECT_EQ(complete_steps(run.path()).size(), failed ? 1U : 2U);
      if (!failed) break;
      for (const auto& entry : fs::recursive_directory_iterator(run.path())) {
        EXPECT_THAT(entry.path().string(), testing::Not(testing::HasSubstr(".tmp-")));
      }
    }
  }
}

TEST(Checkpoint, PruningKeepsAtLeastTwoAndRemovesTornOnesBehindTheNewest) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2, 3, 5}) save(run.path(), step);
  fs::create_directories(store::checkpoint_directory(run.path(), store::Step{4}));
  fs::create_directories(store::checkpoint_directory(run.path(), store::Step{6}));
  EXPECT_EQ(store::prune_checkpoints(run.path(), {3}).removed.size(), 2U);  // 1 and the torn 4
  EXPECT_THAT(complete_steps(run.path()), testing::ElementsAre(5, 3, 2));
  EXPECT_FALSE(fs::exists(store::checkpoint_directory(run.path(), store::Step{4})));
  EXPECT_TRUE(
      fs::exists(store::checkpoint_directory(run.path(), store::Step{6})));  // may be being written
  store::prune_checkpoints(run.path(), {0});
  EXPECT_THAT(complete_steps(run.path(), store::Verify::hashes), testing::ElementsAre(5, 3));
}

TEST(Checkpoint, PruningThatDiesHalfWayLeavesNoHalfCheckpointThatPassesForOne) {
  bool finished = false;
  for (int call = 0; !finished; ++call) {
    ASSERT_LT(call, 100);
    const ScratchDirectory run;
    RecordProperty("calls", call);
    for (const std::int64_t step : {1, 2, 3}) save(run.path(), step);
    finished = store::survives_death_at(call, [&] { store::prune_checkpoints(run.path(), {2}); });
    const std::vector<std::int64_t> steps = complete_steps(run.path());
    ASSERT_GE(steps.size(), 2U);
    EXPECT_EQ(steps, complete_steps(run.path(), store::Verify::hashes));
    store::prune_checkpoints(run.path(), {2});
    EXPECT_FALSE(fs::exists(store::checkpoint_directory(run.path(), store::Step{1})));
  }
}

TEST(Checkpoint, NewerOnesAreMovedAsideAndNotLost) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2, 3}) save(run.path(), step);
  fs::create_directories(store::checkpoint_directory(run.path(), store::Step{4}));
  // The fourth was never complete: there is nothing to keep.
  EXPECT_EQ(store::set_aside_newer(run.path(), store::Step{2}).size(), 1U);
  EXPECT_FALSE(fs::exists(store::checkpoint_directory(run.path(), store::Step{4})));
  EXPECT_THAT(complete_steps(run.path()), testing::ElementsAre(2, 1));
  save(run.path(), 3);
  const std::vector<fs::path> moved = store::set_aside_newer(run.path(), store::Step{2});
  ASSERT_EQ(moved.size(), 1U);
  EXPECT_EQ(moved[0].filename(), "step-3.aside-2");
  EXPECT_TRUE(fs::exists(moved[0] / "manifest.json"));
}

// The run's directory was moved away while it trains.
TEST(Shards, OfARunThatIsGoneAreNotWritten) {
  const ScratchDirectory scratch;
  const auto run = scratch / "run";
  const auto path = store::checkpoint_directory(run, store::Step{7});
  const auto write = [&] { write_shard(path, "a.safetensors", std::vector<NamedTensor>{}); };
  EXPECT_THROW(write(), store::StoreError);
  EXPECT_FALSE(std::filesystem::exists(run));
  std::filesystem::create_directory(run);
  write();
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace strait::tensors
