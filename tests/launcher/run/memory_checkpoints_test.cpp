#include "launcher/run/memory_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <span>

#include "framework/store/memory_file.h"
#include "launcher/run/local_memory_checkpoints.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using store::Step;
using testing::ElementsAre;
using testing::IsEmpty;

// Of a run whose losses are finite up to this step and of which `skipped` more were not.
LossHistory finite_up_to(std::int64_t step, int skipped = 0) {
  LossHistory losses;
  losses.trained({Step{step}, 1.0, 1}, false);
  for (int i = 1; i <= skipped; ++i) losses.trained({Step{step + i}, 1.0, 1}, true);
  return losses;
}

TEST(NeededInMemory, IsTheNewestUntilALossIsKnown) {
  EXPECT_THAT(needed_in_memory({}, LossHistory()), IsEmpty());
  EXPECT_THAT(needed_in_memory({Step{4}}, LossHistory()), ElementsAre(Step{4}));
  EXPECT_THAT(needed_in_memory({Step{8}, Step{4}}, LossHistory()), ElementsAre(Step{8}));
}

TEST(NeededInMemory, AGoodOneStaysUntilTheNextIsGood) {
  const std::vector<Step> held = {Step{8}, Step{4}};
  EXPECT_THAT(needed_in_memory(held, finite_up_to(8)), ElementsAre(Step{8}, Step{4}));
  EXPECT_THAT(needed_in_memory(held, finite_up_to(9)), ElementsAre(Step{8}));
  EXPECT_THAT(needed_in_memory(held, finite_up_to(8, 1)), ElementsAre(Step{4}));
  EXPECT_THAT(needed_in_memory({Step{8}}, finite_up_to(8, 1)), ElementsAre(Step{8}))
      << "it is all that there is";
}

// Parts in the memory of this process.
class LocalMemory : public testing::Test {
 protected:
  void hold(std::int64_t step) {
    const std::string text = std::to_string(step);
    store::MemoryFile file("part");
    file.write(std::as_bytes(std::span(text)));
    const store::FileSummary summary = file.seal();
    memory_.hold(
        Step{step},
        {{{0, 0}, ::getpid(), {{{"part", summary.size, summary.hash}, file.descriptor()}}}});
  }
  std::vector<Step> held() {
    std::vector<Step> steps;
    for (const auto& one : memory_.end_and_list()) steps.push_back(one.step);
    return steps;
  }

  LocalMemoryCheckpoints memory_;
};

TEST_F(LocalMemory, HoldsBothUntilTheLossOfTheNewestIsSeen) {
  hold(4);
  memory_.judge(finite_up_to(8));
  hold(8);
  EXPECT_THAT(held(), ElementsAre(Step{8}, Step{4}));
  const ScratchDirectory folder;
  for (const auto& one : memory_.end_and_list()) {
    const auto to = folder / std::to_string(number(one.step));
    memory_.save(one, to, [] { return false; });
    EXPECT_EQ(ScratchDirectory::read(to / "part"), std::to_string(number(one.step)));
  }
  memory_.judge(finite_up_to(8, 1));
  EXPECT_THAT(held(), ElementsAre(Step{4}));
  memory_.judge(finite_up_to(12));
  hold(12);
  memory_.judge(finite_up_to(13));
  EXPECT_THAT(held(), ElementsAre(Step{12}));
}

// After a failure: on the disk comes what is known to be good.
TEST_F(LocalMemory, RecoveryPassesOverRuinedOnes) {
  const ScratchDirectory scratch;
  const auto directory = RunDirectory::create(scratch / "run", RunDirectory::Existing::refuse);
  hold(4);
  memory_.judge(finite_up_to(8));
  hold(8);
  std::vector<Step> committed;
  const auto commit = [&](Step step, const std::vector<store::ShardFile>&) {
    committed.push_back(step);
  };
  const MemoryRecovery with{finite_up_to(8, 1), commit, [] { return false; }, [](const auto&) {}};
  EXPECT_EQ(recover_from_memory(directory, memory_, with), Step{4});
  EXPECT_THAT(committed, ElementsAre(Step{4}));
}

}  // namespace
}  // namespace strait::run
