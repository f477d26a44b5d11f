// libFuzzer target: any text as plan.json, as the job of a stage, as a run token, the first
// byte choosing which: a value or one UserError, and what was read is written so that it reads back
// the same.
#include <cstdlib>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/stage_job.h"
#include "tests/fuzz/examples.h"

namespace hosts = strait::hosts;
namespace plan = strait::plan;

namespace {

plan::RunFile read_plan(const std::string& text) {
  return plan::parse_run_file(text, "fuzz/plan.json", [](const auto& /*plugins*/) {});
}

std::string with_plan(const std::string& text) { return plan::run_file_text(read_plan(text)); }
std::string with_stage(const std::string& text) {
  return plan::to_text(plan::parse_stage_job(text));
}
std::string with_agent(const std::string& text) {
  return hosts::to_text(hosts::parse_agent_job(text));
}

constexpr std::string (*kForms[])(const std::string&) = {with_plan, with_stage, with_agent};

plan::Plan small_plan() {
  plan::Plan small;
  small.hosts = {{.name = "a", .gpus = std::vector<std::int64_t>{1}}};
  small.processes.resize(1);
  small.processes[0].chunks = {{0, 1}};
  small.links.resize(1);
  small.sync_offers.resize(1);
  small.speeds.hosts.resize(1);
  small.speeds.links = {recipe::MeasuredLink()};
  small.eval = plan::Plan::Data{};
  return small;
}

}  // namespace

std::vector<std::string> examples() {
  plan::StageJob stage;
  stage.plan = small_plan();
  stage.plugins = {{"file", "hash"}};
  hosts::AgentJob agent;
  agent.devices = {0};
  agent.environment = {{"NAME", "value"}};
  agent.up_megabits = 1;
  return {std::string(1, 0) + plan::run_file_text({{}, small_plan(), "hash"}),
          "\1" + plan::to_text(stage), "\2" + hosts::to_text(agent)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const void* rest = data + 1;
  const std::string text(static_cast<const char*>(rest), size - 1);
  const auto form = kForms[data[0] % std::size(kForms)];
  try {
    const std::string once = form(text);
    if (form(once) != once) std::abort();
  } catch (const strait::base::UserError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
