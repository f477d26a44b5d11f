#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "launcher/base/errors.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/stage_job.h"
#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::plan {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Two stages, two replicas, codec delta.
json written_plan() {
  std::ifstream stream("tests/launcher/recipe/plan.json");
  return json::parse(stream);
}

std::string refusal(const json& plan) {
  return refusal_of<base::UserError>([&] { plan_from_json(plan); });
}

TEST(PlanJson, WritesThePlanThatItReadUnchanged) {
  const json written = written_plan();
  const Plan plan = plan_from_json(written);
  EXPECT_EQ(to_json(plan), written);
  EXPECT_EQ(to_json(plan).dump(1), written.dump(1));
  EXPECT_EQ(std::ranges::count(plan.links, Plan::Use::consensus, &Plan::Link::use), 1);
  EXPECT_EQ(plan.processes.size(), 4);
}

TEST(PlanJson, HashLeavesOutPathsWhichDifferByHost) {
  Plan here = plan_from_json(written_plan());
  here.recipe.model.adapter = "/a/adapter";
  here.recipe.model.weights_run = "/a/runs/X";
  Plan there = here;
  there.train.file = there.recipe.model.path = "/b/inputs";
  there.recipe.model.adapter = "/b/inputs/adapter";
  there.recipe.train.preference.reference = "/b/inputs/reference";
  there.recipe.model.weights_run = "/b/inputs/weights/step-4";
  EXPECT_EQ(there.hash(), here.hash());
  there.steps += 1;
  EXPECT_NE(there.hash(), here.hash());
}

TEST(PlanJson, HashTellsNothingOfSecrets) {
  Plan plan = plan_from_json(written_plan());
  plan.recipe.hosts.list = {{.name = "h0"}, {.name = "h1"}};
  plan.recipe.hosts.spare = {{.name = "h2"}};
  Plan secret = plan;
  secret.recipe.hosts.list[1].environment = {{"TOKEN", "secret"}};
  secret.recipe.hosts.spare[0].environment = {{"TOKEN", "secret"}};
  secret.recipe.on.end = "curl https://example.org/secret";
  EXPECT_EQ(secret.hash(), plan.hash());
  EXPECT_EQ(to_json(without_secrets(secret)), to_json(plan));
  EXPECT_NE(to_json(secret), to_json(plan));
}

TEST(PlanJson, NamesFieldThatIsMissingOrUnknown) {
  json plan = written_plan();
  plan["links"][0].erase("position");
  EXPECT_THAT(refusal(plan), HasSubstr("plan, links: field position is missing"));
  plan = written_plan();
  plan["links"][0]["use"] = "other";
  EXPECT_THAT(refusal(plan), HasSubstr("field use is not a known name"));
  plan = written_plan();
  plan["more"] = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("is unknown to this build"));
  plan = written_plan();
  plan["processes"][0]["chunks"] = json::array();
  EXPECT_THAT(refusal(plan), HasSubstr("process 0.0 has no layers"));
}

TEST(PlanJson, RefusesWhatNoPlanHas) {
  const auto refused = [](const std::function<void(json&)>& change) {
    json plan = written_plan();
    change(plan);
    return refusal(plan);
  };
  EXPECT_THAT(refused([](json& plan) { plan["processes"] = json::array(); }),
              HasSubstr("invalid plan: it has no processes"));
  EXPECT_THAT(refused([](json& plan) { plan["processes"][1]["host_index"] = 7U; }),
              HasSubstr("is on a host that it does not list"));
  EXPECT_THAT(refused([](json& plan) { plan["processes"][1]["threads"] = 0; }),
              HasSubstr("impossible threads or layers"));
  EXPECT_THAT(refused([](json& plan) { plan["links"][0]["position"] = -1; }),
              HasSubstr("has no position"));
  EXPECT_THAT(refused([](json& plan) { plan["micro_batches"] = 0; }),
              HasSubstr("no micro-batches"));
}

TEST(RunFile, ClosesDirectoryToOtherUsersWhereItHoldsVariablesOfHosts) {
  const ScratchDirectory scratch;
  const auto others_may_enter = [&scratch] {
    return (std::filesystem::status(scratch / "run").permissions() &
            (std::filesystem::perms::group_all | std::filesystem::perms::others_all)) !=
           std::filesystem::perms::none;
  };
  std::filesystem::create_directories(scratch / "run");
  RunFile run{net::RunId::random(), plan_from_json(written_plan())};
  run.plan.recipe.hosts.list = {{}, {}};
  write_run_file(scratch / "run/plan.json", run);
  EXPECT_TRUE(others_may_enter());
  run.plan.recipe.hosts.list[1].environment = {{"TOKEN", "secret"}};
  write_run_file(scratch / "run/plan.json", run);
  EXPECT_FALSE(others_may_enter());
}

TEST(RunFile, KeepsTheRecipeHashOfItsCheckpointsWhereSettingsChange) {
  RunFile run{net::RunId::random(), plan_from_json(written_plan())};
  const std::string hash = recipe_hash(run);
  const auto read = [&run] {
    return parse_run_file(run_file_text(run), "plan.json", [](const auto& /*plugins*/) {});
  };
  run.plan.recipe.checkpoint.keep = 9;
  EXPECT_EQ(recipe_hash(read()), hash) << "how a run is executed is not part of it";
  run.plan.recipe.train.learning_rate = 1;
  EXPECT_NE(recipe_hash(read()), hash);
  run.recipe_hash = hash;
  EXPECT_EQ(manifest_for(read(), 1, store::Step{3}).recipe_hash, hash);
}

TEST(RunFile, DamagedFileIsNotTakenForThatOfAnotherBuild) {
  const auto code_of = [](const std::string& text) {
    try {
      parse_run_file(text, "runs/x/plan.json", {});
    } catch (const base::UserError& error) {
      return error.code();
    }
    return base::ExitCode::done;
  };
  EXPECT_EQ(code_of(R"({"run": "00)"), base::ExitCode::corrupt);
  EXPECT_EQ(code_of(""), base::ExitCode::corrupt);
  EXPECT_EQ(code_of(R"({"run": 1e999})"), base::ExitCode::corrupt);
  EXPECT_EQ(code_of(std::string(1'000'000, '[')), base::ExitCode::corrupt);
  EXPECT_EQ(code_of(std::string(1'000'000, '[') + std::string(1'000'000, ']')),
            base::ExitCode::corrupt);
  EXPECT_EQ(code_of(R"({"run": 3})"), base::ExitCode::mismatch);
}

// A run may be moved, with its rows; a user's token file of another name stays the user's.
TEST(RunFile, FindsRowsOfTheRunWhereItIsNow) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "run/data");
  std::ofstream(scratch / "run/data/train.safetensors") << "rows";
  std::ofstream(scratch / "run/data/eval.safetensors") << "rows";
  RunFile run{net::RunId::random(), plan_from_json(written_plan())};
  const auto read = [&](const std::string& train, const std::string& eval) {
    run.plan.train.file = train;
    run.plan.eval = Plan::Data{eval, "", 1};
    return parse_run_file(run_file_text(run), scratch / "run/plan.json",
                          [](const auto& /*plugins*/) {});
  };
  const RunFile moved = read("/former/run/data/train.safetensors", "/former/data/eval.safetensors");
  EXPECT_EQ(moved.plan.train.file, scratch / "run/data/train.safetensors");
  EXPECT_EQ(moved.plan.eval->file, scratch / "run/data/eval.safetensors");
  const RunFile own = read("/mine/data/eval.safetensors", "/mine/data/train.safetensors");
  EXPECT_EQ(own.plan.train.file, "/mine/data/eval.safetensors");
  EXPECT_EQ(own.plan.eval->file, "/mine/data/train.safetensors");
}

TEST(StageJob, ReadsBackWhatItWrote) {
  StageJob job;
  job.plan = plan_from_json(written_plan());
  job.process = {1, 1};
  job.run = net::RunId::random();
  job.keys = {"public", "secret"};
  job.plugins = {{"libmine.so", "00ff"}};
  job.binds = {{"boundary 0.0>1.0", "127.0.0.1"}};
  job.absent = {2, 3};
  job.resume_exact = true;
  const std::string text = to_text(job);
  EXPECT_EQ(to_text(parse_stage_job(text)), text);
  EXPECT_EQ(json::parse(text)["plugins"], json::parse(R"([["libmine.so","00ff"]])"));
  EXPECT_THROW(parse_stage_job("{}"), base::UserError);
  EXPECT_THROW(parse_stage_job("{"), base::UserError);
}

TEST(StageJob, HoldsVariablesOfNoHost) {
  StageJob job;
  job.plan = plan_from_json(written_plan());
  job.plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  job.plan.recipe.hosts.list = {{.name = "h0", .environment = {{"TOKEN", "one secret"}}}};
  job.plan.recipe.hosts.spare = {{.name = "h1", .environment = {{"TOKEN", "another secret"}}}};
  const std::string text = to_text(job);
  EXPECT_THAT(text, HasSubstr("h1"));
  EXPECT_THAT(text, testing::Not(HasSubstr("secret\"")));
  Plan without = job.plan;
  without.recipe.hosts.list.front().environment.clear();
  EXPECT_EQ(without.hash(), job.plan.hash()) << "no host knows the variables of another one";
}

}  // namespace
}  // namespace strait::plan
