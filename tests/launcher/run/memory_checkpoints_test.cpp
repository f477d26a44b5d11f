#include "launcher/run/memory_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using store::Step;
using testing::ElementsAre;

// Of a run whose losses are finite up to this step and of which `skipped` more were not.
LossHistory finite_up_to(std::int64_t step, int skipped = 0) {
  LossHistory losses;
  losses.trained({Step{step}, 1.0, 1}, false);
  for (int i = 1; i <= skipped; ++i) losses.trained({Step{step + i}, 1.0, 1}, true);
  return losses;
}

// Parts in the memory of this machine.
class LocalMemory : public testing::Test {
 protected:
  void hold(std::int64_t step) {
    const std::string text = std::to_string(step);
    const auto folder = in_memory(step);
    std::filesystem::create_directory(folder);
    const store::FileSummary summary = store::replace_file(folder / "part", text);
    memory_.hold(Step{step}, {{"part", summary.size, summary.hash}});
  }
  std::filesystem::path in_memory(std::int64_t step) const {
    return store::checkpoint_directory(plan::memory_directory(run_.run, 0), Step{step});
  }
  void judge(const LossHistory& losses) { table_.judge(losses.good(), {}); }
  std::vector<Step> held() {
    std::vector<Step> steps;
    for (const auto& one : table_.held()) steps.push_back(one.step);
    return steps;
  }

  const plan::RunFile run_{net::RunId::random(), {}};
  const ScratchDirectory scratch_;
  CheckpointTable table_{
      {scratch_ / "run"}, {{"", {}, "", plan::memory_directory(run_.run, 0)}}, nullptr};
  MemoryCheckpoints memory_{run_, table_, [](std::size_t) { return false; }};
};

TEST_F(LocalMemory, HoldsBothUntilTheLossOfTheNewestIsSeen) {
  hold(4);
  judge(finite_up_to(8));
  hold(8);
  EXPECT_THAT(held(), ElementsAre(Step{8}, Step{4}));
  const ScratchDirectory folder;
  for (const auto& one : table_.held()) {
    const auto to = folder / std::to_string(number(one.step));
    memory_.save(one, to, [] { return false; });
    EXPECT_EQ(ScratchDirectory::read(to / "part"), std::to_string(number(one.step)));
  }
  judge(finite_up_to(8, 1));
  EXPECT_THAT(held(), ElementsAre(Step{8}, Step{4})) << "8 is not known to be good";
  hold(12);
  EXPECT_THAT(held(), ElementsAre(Step{12}, Step{4}));
  EXPECT_FALSE(std::filesystem::exists(in_memory(8)));
  judge(finite_up_to(13));
  EXPECT_THAT(held(), ElementsAre(Step{12}));
  EXPECT_FALSE(std::filesystem::exists(in_memory(4)));
  EXPECT_TRUE(std::filesystem::exists(in_memory(12)));
}

// After a failure: on the disk comes what is known to be good.
TEST_F(LocalMemory, RecoveryPassesOverRuinedOnes) {
  hold(4);
  judge(finite_up_to(8));
  hold(8);
  std::vector<Step> committed;
  const auto commit = [&](Step step, const std::vector<store::ShardFile>&) {
    committed.push_back(step);
  };
  EXPECT_EQ(memory_.recover({finite_up_to(8, 1), commit, [] { return false; }, [](const auto&) {}}),
            Step{4});
  EXPECT_THAT(committed, ElementsAre(Step{4}));
}

// A full disk damages nothing: the checkpoint waits in memory, and an older one is not taken.
TEST_F(LocalMemory, RecoveryWaitsForRoomOnTheDisk) {
  const auto disk = scratch_ / "run" / "checkpoints";
  std::filesystem::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "needs root, which may mount a small disk";
  }
  const auto ballast = disk / "ballast";
  std::ofstream file(ballast);
  while (file << std::string(4096, 'x') << std::flush) continue;
  file.close();
  hold(4);
  judge(finite_up_to(8));
  hold(8);
  std::vector<Step> committed;
  std::vector<std::string> events;
  bool stopped = false;
  const auto recover = [&](bool makes_room) {
    events.clear();
    return memory_.recover(
        {finite_up_to(9),
         [&](Step step, const std::vector<store::ShardFile>&) { committed.push_back(step); },
         [&] { return stopped; },
         [&](const Event& event) {
           events.push_back(event.name);
           if (makes_room) std::filesystem::remove(ballast);
           stopped = !makes_room;
         }});
  };
  EXPECT_EQ(recover(false), std::nullopt);
  EXPECT_THAT(events, ElementsAre("waits_for_room", "lost_memory"));
  EXPECT_FALSE(std::filesystem::exists(disk / "step-8"));
  stopped = false;
  EXPECT_EQ(recover(true), Step{8});
  EXPECT_THAT(events, ElementsAre("waits_for_room", "from_memory"));
  EXPECT_THAT(committed, ElementsAre(Step{8}));
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace strait::run
