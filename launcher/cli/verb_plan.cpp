#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text_table.h"
#include "launcher/cli/emit.h"
#include "launcher/cli/run_options.h"
#include "launcher/cli/verbs.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/run_files.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"

namespace strait::cli {
namespace {

base::ExitCode show_plan(const RunOptions& options) {
  const planner::PlannedRun planned = planner::make_plan(read_recipe(options));
  warn_about_data(planned);
  hosts::check_launcher_address(planned.plan.recipe.hosts);
  std::cout << (options.json ? to_json(plan::without_secrets(planned.plan)).dump(1) + "\n"
                             : planner::plan_text(planned.plan, base::terminal_columns()));
  return base::ExitCode::done;
}

base::ExitCode emit_plan(const RunOptions& options) {
  const planner::PlannedRun planned = planner::make_plan(read_recipe(options));
  std::cout << emit_commands(planned.plan,
                             {base::own_program(), options.recipe.string(), options.overrides});
  return base::ExitCode::done;
}

}  // namespace

void add_plan(CLI::App& cli, Command& command) {
  const auto options = std::make_shared<RunOptions>();
  const auto emit = std::make_shared<std::string>();
  CLI::App* verb = cli.add_subcommand("plan", "show what a recipe would run where; starts nothing");
  verb->add_option("recipe", options->recipe, "a recipe file")->required();
  add_run_options(verb, options);
  verb->add_option("--emit", *emit, "commands: print those for hosts that join by a token instead")
      ->check(CLI::IsMember({"commands"}));
  verb->callback([options, emit, &command] {
    command = [options, emit] { return emit->empty() ? show_plan(*options) : emit_plan(*options); };
  });
}

}  // namespace strait::cli
