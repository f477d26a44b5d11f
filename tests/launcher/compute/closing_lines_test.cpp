#include "launcher/compute/closing_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/checkpoint.h"
#include "framework/store/step_folders.h"
#include "launcher/base/own_program.h"
#include "tests/scratch_directory.h"

namespace strait::compute {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ClosingLines : public testing::Test {
 protected:
  ClosingLines() {
    for (const std::int64_t step : {10, 12}) {
      const auto path = store::checkpoint_directory(scratch_.path(), store::Step{step});
      std::filesystem::create_directories(path);
      ScratchDirectory::write(path / store::kManifestName, "{}");
    }
    outcome_.code = base::ExitCode::mismatch;
  }
  std::vector<std::string> lines(const std::string& asked) {
    return closing_lines(scratch_.path(), plan_, outcome_, asked, losses_);
  }
  void train(std::int64_t step, double loss, bool skipped = false) {
    losses_.trained({store::Step{step}, loss, 1000}, skipped);
  }

  ScratchDirectory scratch_;
  plan::Plan plan_;
  run::LossHistory losses_{5.5};  // of a guess
  run::Outcome outcome_;
};

TEST_F(ClosingLines, RepeatWhatAResumeWasAskedForUntilItIsApplied) {
  EXPECT_THAT(lines(" --set train.steps=16"),
              ElementsAre(EndsWith(" --set train.steps=16   (from step 12)")));
  EXPECT_THAT(lines(" --from 10"), ElementsAre(EndsWith(" --from 10")));
  outcome_.trained = true;
  EXPECT_THAT(lines(" --from 10 --set train.steps=16"),
              ElementsAre(EndsWith(scratch_.path().string() + "   (from step 12)")));
}

TEST_F(ClosingLines, DoNotRepeatAModelThatWasRefused) {
  outcome_.code = base::ExitCode::bad_input;
  EXPECT_THAT(lines(" --set train.steps=16 --set model.path=other"),
              ElementsAre(EndsWith(scratch_.path().string() +
                                   "   (from step 12, without what was refused)")));
  outcome_.code = base::ExitCode::peer_lost;
  EXPECT_THAT(lines(" --set model.path=moved"),
              ElementsAre(EndsWith(" --set model.path=moved   (from step 12)")));
}

TEST_F(ClosingLines, GoBackToTheNewestCheckpointKnownToBeGood) {
  plan_.recipe.train.learning_rate = 10;
  outcome_.code = base::ExitCode::numeric;
  train(11, 3.0);
  train(12, 900, /*skipped=*/true);
  train(13, 900, /*skipped=*/true);
  const std::string advice =
      scratch_.path().string() +
      " --from 10 --set train.learning_rate=1   (the newest checkpoint that is known to be good)";
  EXPECT_THAT(lines(""), ElementsAre(AllOf(StartsWith("resume    "), EndsWith(advice))));
  // After any other failure a resume passes over the newest.
  outcome_.code = base::ExitCode::peer_lost;
  outcome_.trained = true;
  EXPECT_THAT(lines(""), ElementsAre(EndsWith("   (from step 10)")));
  // A run that ends well, or is stopped, though its losses do not.
  outcome_.code = base::ExitCode::done;
  outcome_.step = store::Step{12};
  for (const bool stopped : {false, true}) {
    outcome_.stopped = stopped;
    EXPECT_THAT(lines(""), Contains(AllOf(StartsWith("go back   "), EndsWith(advice))));
    EXPECT_THAT(lines(""), Not(Contains(StartsWith("resume"))));
  }
  train(14, 3.0);
  EXPECT_THAT(lines(""), Not(Contains(StartsWith("go back"))));
  EXPECT_THAT(lines(""), Contains(StartsWith("resume")));
}

TEST_F(ClosingLines, SayHowARunThatHasEndedEarlyTrainsOn) {
  outcome_.code = base::ExitCode::done;
  outcome_.step = store::Step{12};
  const std::string change = scratch_.path().string() + " --set train.stop_when.no_better=0";
  EXPECT_THAT(lines(""), Not(Contains(EndsWith(change))));
  outcome_.early = "it got no better";
  EXPECT_THAT(lines(""), Contains(AllOf(StartsWith("train on  "), EndsWith(change))));
  EXPECT_THAT(complete_line(scratch_.path(), plan_, outcome_.early, false),
              AllOf(HasSubstr(" is complete: it ended early: it got no better; to train on: "),
                    EndsWith(change)));
  plan_.steps = 12;
  EXPECT_THAT(complete_line(scratch_.path(), plan_, "", true),
              AllOf(HasSubstr(" is complete: all 12 steps are done, so nothing was changed; "),
                    EndsWith(" --set train.steps=24")));
}

TEST_F(ClosingLines, BeginAgainWhereNoCheckpointIsKnownToBeGood) {
  plan_.recipe.train.learning_rate = 10;
  outcome_.code = base::ExitCode::numeric;
  train(1, 6, /*skipped=*/true);
  EXPECT_THAT(
      lines(""),
      ElementsAre(AllOf(StartsWith("again     "),
                        EndsWith("/recipe.toml --replace   (no step was ever finite: change the "
                                 "weights or the data first)"))));
  plan_.recipe.model.dtype = recipe::Dtype::bfloat16;
  EXPECT_THAT(lines(""), ElementsAre(EndsWith(
                             " --replace --set model.dtype=float32   (no step was ever finite, "
                             "so the learning rate is not why)")));
  train(2, 6);
  EXPECT_THAT(lines(""), ElementsAre(EndsWith(" --replace --set train.learning_rate=1   (no "
                                              "checkpoint is known to be good)")));
  std::filesystem::remove_all(scratch_ / store::kCheckpointsFolder);
  EXPECT_THAT(lines(""), ElementsAre(EndsWith("   (there is no checkpoint)")));
}

TEST_F(ClosingLines, AskARunOfChatsAsAUserDoes) {
  ScratchDirectory::write(scratch_ / "eval.jsonl",
                          R"({"messages": [{"role": "user", "content": "who is it?"}, )"
                          R"({"role": "assistant", "content": "me"}]})");
  plan::Plan plan;
  plan.recipe.name = "talk";
  plan.recipe.data.eval = {{(scratch_ / "eval.jsonl").string()}};
  outcome_.code = base::ExitCode::done;
  const std::string command = base::command_name();
  EXPECT_THAT(
      closing_lines("runs/talk", plan, outcome_, "", losses_),
      ElementsAre(testing::StartsWith("results "),
                  "try       " + command + " generate runs/talk --chat --prompt 'who is it?'",
                  "export    " + command + " export runs/talk talk-export"));
}

TEST_F(ClosingLines, ShowTheForecastOfAStepBesideWhatItTook) {
  outcome_.code = base::ExitCode::done;
  ScratchDirectory::write(scratch_ / "status.json", R"json({"parts": [
      {"part": "a step", "forecast_seconds": 2.71, "measured_seconds": 3.21},
      {"part": "compute of stage 1.0 (host b)", "forecast_seconds": 0.9, "measured_seconds": 1.4},
      {"part": "boundary 0.0>1.0", "forecast_seconds": 0.9, "measured_seconds": null}]})json");
  EXPECT_THAT(lines(""), Contains("forecast  a step 2.71 s, took 3.21 s; compute of stage 1.0 "
                                  "(host b) 0.9 s, took 1.4 s"));
  ScratchDirectory::write(scratch_ / "status.json", "{");
  EXPECT_THAT(lines(""), Not(Contains(StartsWith("forecast"))));
}

TEST_F(ClosingLines, AreWordsThatAShellReads) {
  cli::RunOptions options;
  options.from = 10;
  options.overrides = {"train.steps=16", R"(hosts.list=["b", "c"])"};
  options.without = {1};
  EXPECT_EQ(as_words(options),
            R"( --from 10 --set train.steps=16 --set 'hosts.list=["b", "c"]' --without 1)");
  EXPECT_EQ(as_words({}), "");
  outcome_.code = base::ExitCode::done;
  for (const std::string& line : closing_lines("runs/a #1", plan_, outcome_, "", losses_)) {
    if (line.starts_with("results")) continue;
    EXPECT_THAT(line, HasSubstr(" 'runs/a #1'"));
  }
}

}  // namespace
}  // namespace strait::compute
