#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "tests/framework/store/system_faults.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

void save(const fs::path& run, std::int64_t step) {
  save_checkpoint(run, step, {shard_name(0, 0), shard_name(1, 0)});
}

// A save whose process was killed before the commit.
void save_half(const fs::path& run, std::int64_t step) {
  write_checkpoint_files(run, step, {shard_name(0, 0), shard_name(1, 0)});
  ScratchDirectory::write(checkpoint_directory(run, Step{step}) / (shard_name(1, 0) + ".tmp-77"),
                          "half");
}

std::vector<std::string> folders(const fs::path& run) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(PruneCheckpoints, GoesOnBehindAFileThatCannotBeRemoved) {
  for (int call = 0;; ++call) {
    ASSERT_LT(call, 100);
    const ScratchDirectory run;
    for (const std::int64_t step : {1, 2, 3, 4}) save(run.path(), step);
    save_half(run.path(), 5);
    save(run.path(), 6);
    Pruned pruned;
    // 6 and 4 stay; 1, 2, 3 and the half 5 go, but for what the failing call is about.
    const SystemFault fault{
        .call = SystemCall::remove, .after = call, .error = EBUSY, .once = true};
    const int calls =
        with_fault(fault, [&] { EXPECT_NO_THROW(pruned = prune_checkpoints(run.path(), {2})); });
    EXPECT_EQ(complete_steps(run.path(), Verify::hashes).at(0), 6);
    EXPECT_EQ(complete_steps(run.path(), Verify::hashes).at(1), 4);
    if (calls <= call) {
      EXPECT_THAT(pruned.left, testing::IsEmpty());
      EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-6", "step-4"));
      break;
    }
    ASSERT_EQ(pruned.left.size(), 1U) << "call " << call;
    EXPECT_THAT(pruned.left[0].reason, testing::HasSubstr(pruned.left[0].path.string()));
    EXPECT_THAT(pruned.left[0].reason, testing::HasSubstr("busy"));
    EXPECT_EQ(folders(run.path()).size(), 3U) << "call " << call;
    // The next pruning tries again.
    EXPECT_THAT(prune_checkpoints(run.path(), {2}).left, testing::IsEmpty());
    EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-6", "step-4"));
  }
}

TEST(PruneCheckpoints, ReportsAFolderThatStaysAndRemovesItsShards) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2, 3}) save(run.path(), step);
  const fs::path old = checkpoint_directory(run.path(), Step{1});
  fs::create_directories(old / "mounted");
  if (::mount("none", (old / "mounted").c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "this user cannot mount";
  }
  for (int round = 0; round < 2; ++round) {
    const Pruned pruned = prune_checkpoints(run.path(), {2});
    ASSERT_EQ(pruned.left.size(), 1U);
    EXPECT_EQ(pruned.left[0].path, old);
    EXPECT_FALSE(fs::exists(old / shard_name(0, 0)));
    EXPECT_THAT(complete_steps(run.path(), Verify::hashes), testing::ElementsAre(3, 2));
  }
  ASSERT_EQ(::umount((old / "mounted").c_str()), 0);
  EXPECT_THAT(prune_checkpoints(run.path(), {2}).left, testing::IsEmpty());
  EXPECT_FALSE(fs::exists(old));
}

TEST(PruneCheckpoints, RemovesWhatWasSetAsideAndLeftoversOfDeadWriters) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2, 3}) save(run.path(), step);
  EXPECT_EQ(set_aside_newer(run.path(), Step{2}).size(), 1U);
  prune_checkpoints(run.path(), {2}, PruneTime::at_start);  // nothing newer is complete yet
  EXPECT_TRUE(fs::exists(run.path() / "checkpoints" / "step-3.aside-1"));
  const fs::path newest = checkpoint_directory(run.path(), Step{4});
  save_half(run.path(), 4);
  ScratchDirectory::write(newest / shard_name(0, 3), "of a replica that was lost meanwhile");
  ScratchDirectory::write(newest / "notes.txt", "of the user");
  fs::create_directories(run.path() / "checkpoints" / "step-3.aside-x");
  save(run.path(), 4);
  EXPECT_THAT(prune_checkpoints(run.path(), {2}).left, testing::IsEmpty());
  EXPECT_THAT(folders(run.path()),
              testing::UnorderedElementsAre("step-4", "step-2", "step-3.aside-x"));
  EXPECT_FALSE(fs::exists(newest / (shard_name(1, 0) + ".tmp-77")));
  EXPECT_FALSE(fs::exists(newest / shard_name(0, 3)));
  EXPECT_TRUE(fs::exists(newest / "notes.txt"));
  EXPECT_THAT(complete_steps(run.path(), Verify::hashes), testing::ElementsAre(4, 2));
}

TEST(PruneCheckpoints, DamagedOneGoesOnceEnoughNewerOnesAreKept) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2, 3}) save(run.path(), step);
  ScratchDirectory::write(checkpoint_directory(run.path(), Step{2}) / shard_name(0, 0), "cut");
  prune_checkpoints(run.path(), {2});
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-1", "step-2", "step-3"));
  save(run.path(), 4);
  prune_checkpoints(run.path(), {2});
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-3", "step-4"));
}

TEST(PruneCheckpoints, OnHostsGoesOnAndReports) {
  const ScratchDirectory run;
  for (const std::int64_t step : {1, 2, 3, 4}) save_half(run.path(), step);
  fs::create_directories(run.path() / "checkpoints" / "step-9.aside-1");
  Pruned pruned;
  with_fault({.call = SystemCall::remove, .after = 1, .error = EACCES, .once = true}, [&] {
    pruned = prune_all_but(run.path(), {Step{2}, Step{4}});
  });
  EXPECT_EQ(pruned.left.size(), 1U);
  EXPECT_THAT(prune_all_but(run.path(), {Step{2}, Step{4}}).left, testing::IsEmpty());
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-2", "step-4"));
}

// Shards of a checkpoint that was committed elsewhere have no manifest on their host.
TEST(PruneCheckpoints, RewindOnHostsRemovesNothing) {
  for (int call = 0;; ++call) {
    ASSERT_LT(call, 100);
    const ScratchDirectory run;
    save(run.path(), 1);
    save(run.path(), 2);
    save_half(run.path(), 3);
    bool failed = false;
    const SystemFault fault{.call = SystemCall::any, .after = call, .error = EIO, .once = true};
    const int calls = with_fault(fault, [&] {
      try {
        set_aside_newer(run.path(), Step{1}, Uncommitted::set_aside);
      } catch (const StoreError& error) {
        failed = true;
        EXPECT_EQ(error.kind(), StoreError::Kind::storage_io);
      }
    });
    EXPECT_EQ(folders(run.path()).size(), 3U) << "call " << call;
    EXPECT_TRUE(failed || !fs::exists(checkpoint_directory(run.path(), Step{2})));
    set_aside_newer(run.path(), Step{1}, Uncommitted::set_aside);
    EXPECT_THAT(folders(run.path()),
                testing::UnorderedElementsAre("step-1", "step-2.aside-1", "step-3.aside-1"));
    if (calls <= call) break;
  }
}

TEST(StepsToKeep, AreTheNewestAndTheNewestKnownToBeGood) {
  const std::vector<Step> all = {Step{34}, Step{32}, Step{30}, Step{28}};
  EXPECT_THAT(steps_to_keep(all, 2, {}), testing::ElementsAre(Step{34}, Step{32}));
  EXPECT_THAT(steps_to_keep(all, 2, Step{31}), testing::ElementsAre(Step{34}, Step{32}, Step{30}));
  EXPECT_THAT(steps_to_keep(all, 2, Step{33}), testing::ElementsAre(Step{34}, Step{32}));
  EXPECT_THAT(steps_to_keep(all, 1, Step{28}), testing::ElementsAre(Step{34}, Step{28}));
  EXPECT_THAT(steps_to_keep(all, 2, Step{27}), testing::ElementsAre(Step{34}, Step{32}));
  EXPECT_THAT(steps_to_keep(all, 9, Step{30}), testing::ElementsAreArray(all));
  EXPECT_THAT(steps_to_keep({}, 2, Step{30}), testing::IsEmpty());
}

// Checkpoints of weights that have diverged, one after the other, are no reason to remove it; one
// that is known to be good is.
TEST(PruneCheckpoints, NewestKnownToBeGoodStays) {
  const ScratchDirectory run;
  for (const std::int64_t step : {28, 30, 32, 34, 36}) {
    save(run.path(), step);
    prune_checkpoints(run.path(), {2, Step{31}});
  }
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-36", "step-34", "step-30"));
  prune_checkpoints(run.path(), {2, Step{31}}, PruneTime::at_start);
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-36", "step-34", "step-30"));
  prune_checkpoints(run.path(), {2, Step{35}});
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-36", "step-34"));
}

TEST(PruneCheckpoints, BestAreKeptBesideTheNewest) {
  const std::vector<Step> all = {Step{34}, Step{32}, Step{30}, Step{28}, Step{26}};
  // 29 was evaluated and not saved.
  const BestRule rule{2, {Step{29}, Step{28}, Step{34}, Step{26}}};
  EXPECT_THAT(best_of(all, rule), testing::ElementsAre(Step{28}, Step{34}));
  EXPECT_THAT(steps_to_keep(all, 2, std::nullopt, rule),
              testing::ElementsAre(Step{34}, Step{32}, Step{28}));
  EXPECT_THAT(steps_to_keep(all, 1, Step{30}, {1, rule.order}),
              testing::ElementsAre(Step{34}, Step{30}, Step{28}));
  EXPECT_THAT(best_of(all, {0, rule.order}), testing::IsEmpty());
}

TEST(PruneCheckpoints, BestStaysUntilAnotherOneIsBetter) {
  const ScratchDirectory run;
  PruneRule rule{.keep = 2, .best = {1, {Step{30}, Step{36}, Step{34}}}};
  for (const std::int64_t step : {28, 30, 32, 34, 36}) {
    save(run.path(), step);
    prune_checkpoints(run.path(), rule);
  }
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-36", "step-34", "step-30"));
  // Part of it is on hosts only.
  fs::remove(checkpoint_directory(run.path(), Step{30}) / shard_name(1, 0));
  save(run.path(), 38);
  prune_checkpoints(run.path(), rule);
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-38", "step-36", "step-30"));
  rule.best.order = {Step{36}, Step{30}};
  prune_checkpoints(run.path(), rule);
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-38", "step-36"));
}

// Where files lie on hosts, one that was committed may be incomplete here for a while.
TEST(PruneCheckpoints, KnownToBeGoodButNotHereStaysUntilAnotherOneIsGood) {
  const ScratchDirectory run;
  for (const std::int64_t step : {30, 32, 34}) save(run.path(), step);
  fs::remove(checkpoint_directory(run.path(), Step{30}) / shard_name(1, 0));
  prune_checkpoints(run.path(), {2, Step{31}});
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-34", "step-32", "step-30"));
  prune_checkpoints(run.path(), {2, Step{33}});
  EXPECT_THAT(folders(run.path()), testing::UnorderedElementsAre("step-34", "step-32"));
}

// Any saves, prunings that die at any system call, and losses that come late or never.
TEST(PruneCheckpoints, NewestKnownToBeGoodOutlivesAnySequenceOfDeaths) {
  for (std::uint64_t seed = 40; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const ScratchDirectory run;
    const auto keep = static_cast<std::int64_t>(2 + random() % 2);
    std::int64_t step = 0;
    std::int64_t good = 0;
    for (int round = 0; round < 12; ++round) {
      save(run.path(), step += static_cast<std::int64_t>(1 + random() % 3));
      if (random() % 3 == 0) good = step - static_cast<std::int64_t>(random() % 3);
      const auto is_good = [good](std::int64_t one) { return one <= good; };
      const std::vector<std::int64_t> before = complete_steps(run.path());
      const auto newest = std::ranges::find_if(before, is_good);
      const auto time = random() % 2 == 0 ? PruneTime::at_start : PruneTime::after_commit;
      survives_death_at(static_cast<int>(random() % 12), [&] {
        prune_checkpoints(run.path(), {keep, Step{good}}, time);
      });
      const std::vector<std::int64_t> after = complete_steps(run.path(), Verify::hashes);
      if (newest != before.end()) {
        EXPECT_THAT(after, testing::Contains(*newest));
      }
      EXPECT_EQ(after.front(), step);
    }
    prune_checkpoints(run.path(), {keep, Step{good}});
    EXPECT_LE(folders(run.path()).size(), static_cast<std::size_t>(keep) + 1);
  }
}

// Any sequence of saves, deaths and resumes. A process dies at its n-th system call that changes
// something; the next one goes on from the newest checkpoint, as `strait resume` does.
TEST(PruneCheckpoints, HoldsItsBoundOverAnySequenceOfDeathsAndResumes) {
  const std::uint64_t seed = 20;
  for (std::uint64_t round = 0; round < 10; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed + round);
    std::mt19937_64 random(seed + round);
    const ScratchDirectory run;
    const auto keep = static_cast<std::int64_t>(2 + random() % 2);
    std::int64_t known = 0;  // at least this step was committed
    for (int launch = 0; launch < 12; ++launch) {
      std::int64_t step = 0;
      if (const auto newest = choose_checkpoint(run.path())) {
        step = number(newest->checkpoint.manifest.step);
      }
      ASSERT_GE(step, known);
      // One resume in four goes on from an older one on purpose.
      const std::vector<std::int64_t> steps = complete_steps(run.path(), Verify::hashes);
      if (!steps.empty() && random() % 4 == 0) step = known = steps[random() % steps.size()];
      const auto every = static_cast<std::int64_t>(1 + random() % 3);
      const auto dies_at = static_cast<int>(random() % 90);
      survives_death_at(dies_at, [&] {
        set_aside_newer(run.path(), Step{step});
        prune_checkpoints(run.path(), {keep}, PruneTime::at_start);
        for (int saves = 0; saves < 3; ++saves) {
          step += every;
          save(run.path(), step);
          prune_checkpoints(run.path(), {keep});
          replace_file(run.path() / "known", std::to_string(step));
        }
      });
      if (fs::exists(run.path() / "known"))
        known = std::stoll(ScratchDirectory::read(run.path() / "known"));
      fs::remove(run.path() / "known");
    }
    const std::vector<std::int64_t> steps = complete_steps(run.path(), Verify::hashes);
    const std::int64_t last = steps.empty() ? 0 : steps.front();
    set_aside_newer(run.path(), Step{last});
    save(run.path(), last + 1);
    EXPECT_THAT(prune_checkpoints(run.path(), {keep}).left, testing::IsEmpty());
    EXPECT_EQ(folders(run.path()).size(), complete_steps(run.path(), Verify::hashes).size());
    EXPECT_LE(folders(run.path()).size(), static_cast<std::size_t>(keep));
    for (const std::int64_t one : complete_steps(run.path(), Verify::hashes)) {
      const fs::path path = checkpoint_directory(run.path(), Step{one});
      EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 3);
    }
  }
}

// The same without resumes from older ones: the bound holds at any time, even where every launch
// dies between a commit and its pruning.
TEST(PruneCheckpoints, StaysWithinOneMoreThanKept) {
  for (int call = 0; call < 60; call += 4) {
    const ScratchDirectory run;
    for (int launch = 0; launch < 6; ++launch) {
      const auto newest = choose_checkpoint(run.path());
      const std::int64_t from = newest ? number(newest->checkpoint.manifest.step) : 0;
      survives_death_at(call, [&] {
        set_aside_newer(run.path(), Step{from});
        prune_checkpoints(run.path(), {2}, PruneTime::at_start);
        for (std::int64_t step = from + 1; step < from + 4; ++step) {
          save(run.path(), step);
          prune_checkpoints(run.path(), {2});
        }
      });
      if (fs::exists(run.path() / "checkpoints")) {
        EXPECT_LE(folders(run.path()).size(), 3U) << "killed at call " << call;
      }
    }
  }
}

}  // namespace
}  // namespace strait::store
