#include <gmock/gmock.h>

#include <cerrno>

#include "framework/store/checkpoint.h"
#include "framework/store/file_hash.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/framework/store/system_faults.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

// An error of the file system (EIO, ESTALE, EMFILE ...) says nothing about a checkpoint: it is
// neither damaged nor uncommitted, and nothing of it may be removed or passed over.
namespace strait::store {
namespace {

namespace fs = std::filesystem;

void save_step(const fs::path& run, std::int64_t step) {
  save_checkpoint(run, step, {shard_name(0, 0), shard_name(1, 0)});
}

// A path at which every look fails: with ELOOP, which no system call reports for a missing file.
void make_loop(const fs::path& path) {
  fs::remove(path);
  fs::create_symlink(path.filename(), path);
}

// Runs `work` with the n-th stat, then the n-th pread failing, for every n, in a run with the
// checkpoints 1, 2 and 3. `work` may throw StoreError. `check` runs after each, without faults.
void for_each_failing_look(
    const std::function<void(const fs::path&)>& work,
    const std::function<void(const fs::path&, bool threw)>& check = [](const fs::path&, bool) {}) {
  for (const SystemCall kind : {SystemCall::stat, SystemCall::pread}) {
    for (const int error : {EIO, ESTALE, EMFILE}) {
      for (int call = 0;; ++call) {
        ASSERT_LT(call, 300);
        SCOPED_TRACE(testing::Message() << "call " << call << " fails with errno " << error);
        const ScratchDirectory run;
        for (const std::int64_t step : {1, 2, 3}) save_step(run.path(), step);
        bool threw = false;
        const SystemFault fault{.call = kind, .after = call, .error = error, .once = true};
        const int calls = with_fault(fault, [&] {
          try {
            work(run.path());
          } catch (const StoreError& failure) {
            threw = true;
            EXPECT_EQ(failure.kind(), StoreError::Kind::storage_io) << failure.what();
          }
        });
        check(run.path(), threw);
        if (calls <= call) break;
      }
    }
  }
}

TEST(UnreadableCheckpoint, IsNotCalledUncommitted) {
  const ScratchDirectory run;
  save_step(run.path(), 1);
  const fs::path path = checkpoint_directory(run.path(), Step{1});
  EXPECT_TRUE(is_committed(path));
  EXPECT_FALSE(is_committed(checkpoint_directory(run.path(), Step{2})));
  EXPECT_FALSE(is_committed(path / shard_name(0, 0)));  // no directory
  make_loop(path / "manifest.json");
  EXPECT_THROW(is_committed(path), StoreError);
  expect_store_error(StoreError::Kind::storage_io, {"too long"},
                     [&] { is_committed(path / std::string(300, 'x')); });
}

TEST(UnreadableCheckpoint, LimitOfOpenFilesIsNamed) {
  EXPECT_THAT(system_error("open", "a", EMFILE).what(),
              testing::ContainsRegex("no more than [0-9]+ files open \\(ulimit -n\\)"));
}

TEST(UnreadableCheckpoint, IsNotPassedOver) {
  for_each_failing_look([](const fs::path& run) {
    const auto chosen = choose_checkpoint(run);
    ASSERT_TRUE(chosen.has_value());
    EXPECT_EQ(number(chosen->checkpoint.manifest.step), 3) << chosen->warning;
  });
  for (const char* name : {"manifest.json", "stage-1.replica-0.safetensors"}) {
    const ScratchDirectory run;
    for (const std::int64_t step : {1, 2}) save_step(run.path(), step);
    make_loop(checkpoint_directory(run.path(), Step{2}) / name);
    EXPECT_THROW(choose_checkpoint(run.path()), StoreError);
  }
}

TEST(UnreadableCheckpoint, IsNotMissingFromTheList) {
  for_each_failing_look([](const fs::path& run) {
    const CheckpointList list = list_checkpoints(run);
    EXPECT_EQ(list.complete.size(), 3U);
    EXPECT_EQ(list.unusable.size(), 0U);
  });
}

TEST(UnreadableCheckpoint, IsNeverRemovedByGoingBackOrPruning) {
  for_each_failing_look([](const fs::path& run) { set_aside_newer(run, Step{1}); },
                        [](const fs::path& run, bool threw) {
                          // What was moved is whole; the rest stays where it was.
                          for (const char* step : {"step-2", "step-3"}) {
                            const fs::path place = run / "checkpoints" / step;
                            const fs::path aside = place.string() + ".aside-1";
                            const fs::path now = fs::exists(aside) ? aside : place;
                            EXPECT_TRUE(fs::exists(now / "manifest.json"));
                            EXPECT_TRUE(fs::exists(now / shard_name(1, 0)));
                            EXPECT_TRUE(threw || now == aside);
                          }
                        });
  for_each_failing_look([](const fs::path& run) { prune_checkpoints(run, {2}); },
                        [](const fs::path& run, bool) {
                          const std::vector<std::int64_t> steps =
                              complete_steps(run, Verify::hashes);
                          ASSERT_GE(steps.size(), 2U);
                          EXPECT_EQ(steps[0], 3);
                          EXPECT_EQ(steps[1], 2);
                          // What stayed because of the error goes with the next pruning.
                          EXPECT_TRUE(prune_checkpoints(run, {2}).left.empty());
                          EXPECT_EQ(complete_steps(run, Verify::hashes).size(), 2U);
                        });
}

TEST(UnreadableCheckpoint, OfAnotherFormatIsForAnotherBuildToRead) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2}) save_step(run.path(), step);
  const fs::path file = checkpoint_directory(run.path(), Step{2}) / "manifest.json";
  std::string text = ScratchDirectory::read(file);
  const std::string version = "\"format_version\": ";
  const std::size_t at = text.find(version) + version.size();
  text.replace(at, 1, "9");
  // Its own hash has to be right again: of the text with zeros in the place of the digits.
  const std::string key = "\n  \"check\": \"";
  const std::size_t digits = text.find(key) + key.size();
  text.replace(digits, 32, 32, '0');
  text.replace(digits, 32, hash_text(text));
  ScratchDirectory::write(file, text);
  expect_store_error(StoreError::Kind::mismatch, {"format version 9"},
                     [&] { choose_checkpoint(run.path()); });
}

}  // namespace
}  // namespace strait::store
