#include "launcher/compute/prepared_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/compute/model_card.h"
#include "tests/scratch_directory.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;
using Existing = run::RunDirectory::Existing;

// Its rows are a token file of the user, so none are written.
planner::PlannedRun planned_run() {
  planner::PlannedRun planned;
  planned.train.files = {{"rows.safetensors"}};
  planned.train.is_token_file = true;
  return planned;
}

TEST(PrepareRun, InterruptedLeavesNothingAndGivesAnEarlierRunItsNameBack) {
  const ScratchDirectory scratch;
  const fs::path run = scratch / "run";
  const base::StopSignals signals;  // the count of a nested one goes on
  {
    const PreparedRun prepared = prepare_run(run, planned_run(), Existing::refuse);
    EXPECT_EQ(prepared.run.plan.train.file, fs::absolute("rows.safetensors").string());
  }
  EXPECT_TRUE(fs::exists(run / "plan.json"));
  EXPECT_TRUE(fs::exists(run / "recipe.toml"));
  ScratchDirectory::write(run / "metrics.jsonl", "earlier");
  std::raise(SIGINT);
  const auto prepare = [](const fs::path& path) {
    try {
      prepare_run(path, planned_run(), Existing::move_aside);
    } catch (const base::UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("interrupted while"));
      return error.code();
    }
    return base::ExitCode::done;
  };
  EXPECT_EQ(prepare(run), base::ExitCode::interrupted);
  EXPECT_EQ(ScratchDirectory::read(run / "metrics.jsonl"), "earlier");
  EXPECT_FALSE(fs::exists(scratch / "run.old-1"));
  EXPECT_EQ(prepare(scratch / "new"), base::ExitCode::interrupted);
  EXPECT_FALSE(fs::exists(scratch / "new"));
}

// The card leaves this machine.
TEST(ModelCard, ShowsOnlyTheLastPartOfAPath) {
  RunCheckpoint source;
  recipe::Recipe& recipe = source.run.plan.recipe;
  recipe.train.preference.loss = recipe::PreferenceKind::dpo;
  for (std::string* path : {&recipe.model.path, &recipe.model.adapter, &recipe.data.tokenizer,
                            &recipe.train.preference.reference}) {
    *path = "/machine/last";
  }
  EXPECT_THAT(model_card(source, "/machine", false),
              testing::AllOf(testing::HasSubstr("reference = \"last\""),
                             Not(testing::HasSubstr("/machine"))));
}

}  // namespace
}  // namespace strait::compute
