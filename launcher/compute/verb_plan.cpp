
#include <iostream>

#include "launcher/cli/status_text.h"
#include "launcher/compute/cpu_speed.h"
#include "launcher/compute/verbs.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/planner/fit.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/run_forecast.h"

namespace strait::compute {
namespace {

nlohmann::json plan_json(const plan::Plan& plan) {
  nlohmann::json shown = to_json(plan::without_secrets(plan));
  shown["load"] = to_json(planner::load_of(plan));
  shown["run"] = to_json(planner::forecast_run(plan), plan);
  return shown;
}

base::ExitCode show_plan(const cli::RunOptions& options) {
  const planner::PlannedRun planned = plan_first(read_recipe(options));
  warn_about_data(planned);
  hosts::check_launcher_address(planned.plan.recipe.hosts);
  const std::size_t columns = base::terminal_columns();
  std::cout << (options.json
                    ? plan_json(planned.plan).dump(1) + "\n"
                    : cli::folded_text(planner::plan_text(planned.plan, columns), columns));
  return base::ExitCode::done;
}

// Compares the plan with changed hosts or links to the plan as it is.
base::ExitCode show_what_if(const cli::RunOptions& options,
                            const std::vector<std::string>& changes) {
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

// All sizes, one of them, or the model of a recipe.
std::vector<planner::FitModel> fit_models(const cli::RunOptions& options) {
  std::vector<planner::FitModel> models = planner::fit_sizes();
  const auto named = std::ranges::find(models, options.recipe.string(), &planner::FitModel::name);
  if (!options.recipe.empty() && named == models.end()) {
    if (!std::filesystem::exists(options.recipe)) {
      throw base::UserError(base::ExitCode::bad_input,
                            "--fit takes a recipe, 1B, 3B, 7B, 14B or 32B, but {} is none of them "
                            "and no file here",
                            options.recipe.string());
    }
    const recipe::Recipe recipe = read_recipe(options);
    return {{recipe.name, "", recipe}};
  }
  if (!options.overrides.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "--set changes a recipe, but this --fit has none; name a recipe");
  }
  if (named != models.end()) return {*named};
  return models;
}

// The line that a recipe states, else the slowest that was measured.
std::optional<double> fit_megabits(const recipe::Recipe& recipe) {
  if (recipe.hosts.link_megabits || recipe.hosts.links.empty()) return recipe.hosts.link_megabits;
  const auto links = recipe::read_links(recipe.hosts.links).links;
  if (links.empty()) return std::nullopt;
  const auto slowest = std::ranges::min(links, {}, &recipe::MeasuredLink::bits_per_second);
  return slowest.bits_per_second / 1e6;
}

base::ExitCode show_fit(const cli::RunOptions& options, std::optional<double> megabits) {
  const std::vector<planner::FitModel> models = fit_models(options);
  if (!megabits) megabits = fit_megabits(models.front().recipe);
  if (options.json) {
    const std::vector<double> lines =
        megabits ? std::vector{*megabits} : std::vector{100.0, 300.0, 1000.0};
    nlohmann::json shown = nlohmann::json::array();
    for (const planner::FitRow& row : planner::fit_rows(models, lines)) {
      shown.push_back(to_json(row));
    }
    std::cout << shown.dump(1) << '\n';
    return base::ExitCode::done;
  }
  const double line = megabits.value_or(100);
  std::cout << planner::fit_text(planner::fit_rows(models, {line}))
            << fmt::format(
                   "Tokens a second by assumed speeds; hosts with a GPU each, and {:g} Mbit/s.\n"
                   "-: does not fit. The plan takes r: recompute, a: activations in host memory, "
                   "o: off-load, b or 8: moments in bfloat16 or int8.\n"
                   "2 beat 1: the Mbit/s from which two hosts are faster than one.\n",
                   line);
  return base::ExitCode::done;
}

std::string run_command(const EmitSource& source) {
  std::string command =
      base::shell_word(source.program.string()) + " run " + base::shell_word(source.recipe);
  for (const std::string& words : source.overrides) command += " --set " + base::shell_word(words);
  return command;
}

std::string join_command(const plan::Plan& plan, EmitSource source) {
  if (plan.recipe.hosts.list.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "hosts that join need names: give hosts.list, as in --set "
                          "'hosts.backend=\"join\"' --set 'hosts.list=[\"alpha\", \"beta\"]'");
  }
  if (plan.recipe.hosts.backend != recipe::BackendKind::join) {
    source.overrides.emplace_back("hosts.backend=\"join\"");
  }
  return run_command(source);
}

// What the user calls: this program, or the one without libtorch, which has executed it.
std::filesystem::path called_program() {
  std::filesystem::path program = base::own_program();
  return program.filename() == "strait-torch" ? program.replace_filename("strait") : program;
}

base::ExitCode emit_plan(const cli::RunOptions& options) {
  const planner::PlannedRun planned = plan_first(read_recipe(options));
  std::cout << emit_commands(planned.plan,
                             {called_program(), options.recipe.string(), options.overrides});
  return base::ExitCode::done;
}

}  // namespace

std::string emit_commands(const plan::Plan& plan, const EmitSource& source) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const std::filesystem::path run = std::filesystem::path("runs") / plan.recipe.name;
  std::string text = fmt::format(
      "# First, where the hosts can reach it at {}, ports {}-{}. It writes a token for each host\n"
      "# and waits {} s for all of them:\n{}\n"
      "# Then on each host, with a copy of its own token (a secret, good as long as that command "
      "runs):\n",
      hosts.address.empty() ? "its address (or hosts.address)" : hosts.address, hosts.ports.first,
      hosts.ports.second, hosts.join_wait, join_command(plan, source));
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    text += fmt::format("# {}:\n{} join {}\n", plan.hosts[i].name,
                        base::shell_word(source.program.string()),
                        base::shell_word(hosts::token_file(run, i).string()));
  }
  return text;
}

base::ExitCode perform(const cli::PlanFlags& flags) {
  if (flags.fit) return show_fit(flags.run, flags.megabits);
  if (!flags.changes.empty()) return show_what_if(flags.run, flags.changes);
  return flags.emit.empty() ? show_plan(flags.run) : emit_plan(flags.run);
}

}  // namespace strait::compute
