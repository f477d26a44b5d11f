
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/cli/cpu_speed.h"
#include "launcher/cli/emit.h"
#include "launcher/cli/run_options.h"
#include "launcher/cli/verbs.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/run_files.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/run_forecast.h"
#include "launcher/planner/what_if.h"
#include "launcher/recipe/links.h"

namespace strait::cli {
namespace {

nlohmann::json plan_json(const plan::Plan& plan) {
  nlohmann::json json = to_json(plan::without_secrets(plan));
  json["load"] = to_json(planner::load_of(plan));
  json["run"] = to_json(planner::forecast_run(plan), plan);
  return json;
}

base::ExitCode show_plan(const RunOptions& options) {
  const planner::PlannedRun planned = plan_first(read_recipe(options));
  warn_about_data(planned);
  hosts::check_launcher_address(planned.plan.recipe.hosts);
  std::cout << (options.json ? plan_json(planned.plan).dump(1) + "\n"
                             : planner::plan_text(planned.plan, base::terminal_columns()));
  return base::ExitCode::done;
}

// Compares the plan with changed hosts or links to the plan as it is.
base::ExitCode show_what_if(const RunOptions& options, const std::vector<std::string>& changes) {
  recipe::Recipe recipe = read_recipe(options);
  recipe::LinkTable speeds;
  if (!recipe.hosts.links.empty()) speeds = recipe::read_links(recipe.hosts.links);
  const plan::Plan now = planner::make_plan(recipe, nullptr, &speeds).plan;
  for (const std::string& change : changes) planner::apply_what_if(change, recipe, speeds);
  const plan::Plan then = planner::make_plan(recipe, nullptr, &speeds).plan;
  if (options.json) {
    std::cout << nlohmann::json{{"as_it_is", plan_json(now)}, {"what_if", plan_json(then)}}.dump(1)
              << '\n';
    return base::ExitCode::done;
  }
  const plan::Layout before = planner::layout_of(now);
  const plan::Layout after = planner::layout_of(then);
  const auto line = [](const char* when, const plan::Plan& plan, const plan::Layout& layout) {
    return fmt::format("{}: {} a step; {}\n  {} takes longest\n", when,
                       planner::forecast_seconds(plan, layout.step_seconds),
                       planner::layout_text(layout), layout.limit);
  };
  std::cout << line("as it is", now, before) << line("what if", then, after)
            << fmt::format("a step takes {:.2f} times as long\n",
                           after.step_seconds / before.step_seconds);
  return base::ExitCode::done;
}

base::ExitCode emit_plan(const RunOptions& options) {
  const planner::PlannedRun planned = plan_first(read_recipe(options));
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
  const auto changes = std::make_shared<std::vector<std::string>>();
  verb->add_option(
          "--what-if", *changes,
          "compare with \"link A B 100Mbit/s\", \"without A\" or \"add D like A\"; repeatable")
      ->take_all()
      ->allow_extra_args(false)
      ->excludes("--emit");
  verb->callback([options, emit, changes, &command] {
    command = [options, emit, changes] {
      if (!changes->empty()) return show_what_if(*options, *changes);
      return emit->empty() ? show_plan(*options) : emit_plan(*options);
    };
  });
}

}  // namespace strait::cli
