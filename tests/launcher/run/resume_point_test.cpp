#include "launcher/run/resume_point.h"

#include <gmock/gmock.h>

#include "launcher/base/errors.h"
#include "launcher/recipe/plan.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// One stage on each of two hosts that cannot be reached.
plan::RunFile run_on_hosts() {
  plan::RunFile run;
  run.plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  for (const std::int64_t stage : {0, 1}) {
    const std::string host = "h" + std::to_string(stage);
    run.plan.recipe.hosts.list.push_back({.name = host, .address = host});
    run.plan.hosts.push_back({.name = host});
    plan::Plan::Process process;
    process.name = {static_cast<std::uint16_t>(stage), 0};
    process.host = host;
    process.host_index = static_cast<std::size_t>(stage);
    run.plan.processes.push_back(process);
  }
  return run;
}

void save(const fs::path& run, std::int64_t step) {
  store::save_checkpoint(run, step,
                         {store::weights_name(0, 0), store::shard_name(0, 0),
                          store::weights_name(1, 0), store::shard_name(1, 0)});
}

class ResumeNotes : public RunObserver {
 public:
  void note(const std::string& text) override { all += text; }
  std::string all;
};

class RestartPoint : public testing::Test {
 protected:
  RestartPoint() {
    for (const std::int64_t step : {5, 10}) save(directory_.path(), step);
  }

  fs::path newest(const std::string& file) const {
    return store::checkpoint_directory(directory_.path(), store::Step{10}) / file;
  }
  std::int64_t step_without(const std::set<std::size_t>& lost) {
    const auto found =
        restart_point(directory_, run_on_hosts(), std::nullopt, lost, {}, nullptr, notes_);
    return found ? number(found->checkpoint.manifest.step) : 0;
  }

  ScratchDirectory scratch_;
  RunDirectory directory_ = RunDirectory::create(scratch_ / "run", RunDirectory::Existing::refuse);
  ResumeNotes notes_;
};

TEST(StepToGoOnFrom, PassesOverWeightsWhoseLossesAreNotFinite) {
  const std::vector<store::Step> saved = {store::Step{32}, store::Step{30}, store::Step{28}};
  LossHistory losses;
  EXPECT_EQ(step_to_go_on_from(saved, losses), store::Step{32});
  losses.trained({store::Step{31}, 3.0, 1}, false);
  losses.trained({store::Step{32}, 9.0, 1}, false);
  EXPECT_EQ(step_to_go_on_from(saved, losses), store::Step{32}) << "no loss of it has been seen";
  losses.trained({store::Step{33}, 9.0, 1}, true);
  EXPECT_EQ(step_to_go_on_from(saved, losses), store::Step{30});
  EXPECT_EQ(step_to_go_on_from({store::Step{32}}, losses), store::Step{32}) << "there is no other";
  losses.trained({store::Step{34}, 3.0, 1}, false);
  EXPECT_EQ(step_to_go_on_from(saved, losses), store::Step{32});
}

// Of a run on this machine whose newest checkpoint has bad weights.
TEST(GoodStepInstead, PassesOverDamagedCheckpoints) {
  const ScratchDirectory scratch;
  const RunDirectory directory =
      RunDirectory::create(scratch / "run", RunDirectory::Existing::refuse);
  const std::string file = store::weights_name(0, 0);
  for (const std::int64_t step : {5, 10, 15}) {
    store::save_checkpoint(directory.path(), step, {file, store::shard_name(0, 0)});
  }
  ScratchDirectory::write(directory.path() / "metrics.jsonl",
                          R"({"step": 11, "targets": 1, "loss": 2.0})"
                          "\n"
                          R"({"step": 16, "targets": 1, "loss": null, "skipped": true})"
                          "\n");
  plan::Plan plan;
  plan.recipe.hosts.backend = recipe::BackendKind::local;
  ModelQuestions model;
  model.guess_loss = [](const plan::Plan&) { return 0.0; };
  const auto instead = [&](ResumeNotes& notes) {
    return good_step_instead(directory, plan, model, notes);
  };
  const auto damage = [&](std::int64_t step) {
    fs::remove(store::checkpoint_directory(directory.path(), store::Step{step}) / file);
  };
  ResumeNotes whole;
  EXPECT_EQ(instead(whole), store::Step{10});
  damage(10);
  ResumeNotes older;
  EXPECT_EQ(instead(older), store::Step{5});
  EXPECT_THAT(older.all, HasSubstr("an older checkpoint is used: "));
  EXPECT_THAT(older.all, HasSubstr(file));
  // If none is whole, the resume says what is wrong with the newest good one.
  damage(5);
  ResumeNotes none;
  EXPECT_EQ(instead(none), store::Step{10});
}

TEST_F(RestartPoint, IsTheNewestCheckpointThatIsWholeHere) {
  EXPECT_EQ(step_without({1}), 10);
  EXPECT_EQ(notes_.all, "");
}

TEST_F(RestartPoint, IsAnOlderOneWhereFilesWereOnlyOnALostHost) {
  for (const std::string& file : {store::shard_name(1, 0), store::weights_name(1, 0)}) {
    fs::remove(newest(file));
    EXPECT_EQ(step_without({1}), 5);
    EXPECT_THAT(notes_.all, HasSubstr("part of it is only on host h1, which does not answer"));
    EXPECT_THAT(notes_.all, HasSubstr(file + " is missing"));
  }
}

TEST_F(RestartPoint, IsTheChosenOneThoughANewerOneIsWhole) {
  const auto found =
      restart_point(directory_, run_on_hosts(), store::Step{5}, {1}, {}, nullptr, notes_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(number(found->checkpoint.manifest.step), 5);
  fs::remove(store::checkpoint_directory(directory_.path(), store::Step{5}) /
             store::shard_name(1, 0));
  EXPECT_THROW(restart_point(directory_, run_on_hosts(), store::Step{5}, {1}, {}, nullptr, notes_),
               base::UserError);
}

TEST_F(RestartPoint, IsAnOlderOneWhereAFileIsDamagedAndItsHostIsLost) {
  const fs::path damaged = newest(store::weights_name(1, 0));
  std::string text = ScratchDirectory::read(damaged);
  text.back() ^= 1;
  ScratchDirectory::write(damaged, text);
  fs::remove(newest(store::shard_name(1, 0)));
  EXPECT_EQ(step_without({1}), 5);
  EXPECT_EQ(ScratchDirectory::read(damaged), text);  // nothing has changed
}

}  // namespace
}  // namespace strait::run
