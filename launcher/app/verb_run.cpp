#include "launcher/app/verb_run.h"

#include "launcher/app/model_questions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/console/console.h"
#include "launcher/console/text_pump.h"
#include "launcher/base/failure.h"
#include "launcher/hosts/join_call.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_reader.h"
#include "launcher/recipe/recipe_writer.h"
#include "launcher/plan/absent_replicas.h"
#include "launcher/app/changed_run.h"
#include "launcher/launch/recover_checkpoint.h"
#include "launcher/launch/run_launch.h"
#include "launcher/app/sample_show.h"
#include "launcher/hosts/slurm_job.h"
#include "launcher/base/user_error.h"
#include "launcher/app/verb_slurm.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

console::ConsoleOptions console_options(bool as_json) {
  console::ConsoleOptions options;
  if (as_json) {
    options.style = console::ConsoleOptions::Style::json;
  } else if (isatty(STDOUT_FILENO) != 0) {
    options.style = console::ConsoleOptions::Style::live;
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
      options.columns = size.ws_col;
  }
  return options;
}

void write_files(const control::RunDirectory& directory, const plan::RunFile& run) {
  store::replace_file(directory.recipe(), recipe::recipe_to_toml(run.plan.recipe));
  plan::write_run_file(directory.plan(), run);
}

// Writes everything that stages and a later resume need, before anything is started.
plan::RunFile prepare_directory(const control::RunDirectory& directory, planner::PlannedRun planned) {
  plan::Plan& plan = planned.plan;
  plan.train.file = planner::place_data(planned.train, directory.path() / "data" / "train.safetensors");
  if (planned.eval) {
    plan.eval->file = planner::place_data(*planned.eval, directory.path() / "data" / "eval.safetensors");
  }
  // Stages may run in another working directory than the one the user's relative path was meant
  // for.
  for (std::string* path : {&plan.recipe.model.path, &plan.recipe.data.train,
                            &plan.recipe.data.eval, &plan.recipe.pipeline.partition.plugin}) {
    const bool is_name = path->starts_with('#');  // of a partition that is linked in
    if (!path->empty() && !is_name) *path = fs::absolute(*path).lexically_normal().string();
  }
  for (std::string& plugin : plan.recipe.plugins) {
    plugin = fs::absolute(plugin).lexically_normal().string();
  }
  plan::RunFile run{net::RunId::random(), std::move(plan)};
  write_files(directory, run);
  return run;
}

std::vector<std::string> last_words(const fs::path& run, const control::Outcome& outcome) {
  std::vector<std::string> lines;
  const std::string name = run.string();
  if (outcome.code != base::ExitCode::done) {
    if (outcome.checkpoint) {
      lines.push_back(fmt::format("resume    ./strait resume {}   (from step {})", name,
                                  number(*outcome.checkpoint)));
    }
    return lines;
  }
  lines.push_back(
      fmt::format("results   {}: metrics.jsonl, events.jsonl, logs/, trace.json, "
                  "report.html, "
                  "checkpoints/step-{}",
                  name, number(outcome.step)));
  if (outcome.stopped) lines.push_back(fmt::format("resume    ./strait resume {}", name));
  lines.push_back(fmt::format("try       ./strait generate {} --prompt \"...\"", name));
  lines.push_back(fmt::format("export    ./strait export {} DIRECTORY", name));
  return lines;
}

// The run is over and its state is safe: data that has gone since must not make it a failure.
void show_what_it_learnt(const control::RunDirectory& directory, console::Console& console) {
  try {
    for (const std::string& line : show_samples(directory.path())) console.note(line);
  } catch (const store::StoreError& error) {
    console.note(fmt::format("no samples: {}", error.what()));
  }
}

base::ExitCode launch_and_show(control::RunDirectory& directory, const plan::RunFile& run, launch::LaunchOptions options,
                         console::Console& console) {
  options.observers = {&console};
  if (!options.without.empty()) {
    console.note(fmt::format(
        "it begins without replica {}; to add one: strait resume {} --replica {}",
        fmt::join(options.without, ", "), directory.path().string(), *options.without.begin()));
  }
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::join) {
    for (const std::string& line : hosts::join_notes(run.plan, directory.path())) console.note(line);
  }
  const control::Outcome outcome = launch::launch_run(directory, run, options);
  if (outcome.code == base::ExitCode::done && !outcome.stopped) {
    show_what_it_learnt(directory, console);
  }
  console.farewell(last_words(directory.path(), outcome));
  return outcome.code;
}

// `recovered`: what became of shards that were still elsewhere.
std::optional<store::Resumable> choose(const control::RunDirectory& directory,
                                       const std::string& recovered) {
  try {
    return store::choose_checkpoint(directory.path());
  } catch (const store::StoreError& error) {
    if (recovered.empty()) throw;
    throw base::UserError(base::exit_code_of(error), fmt::format("{}; {}", error.what(), recovered));
  }
}

}  // namespace

base::ExitCode show_plan(const RunWords& words) {
  const planner::PlannedRun planned = planner::make_plan(recipe::read_recipe(words.recipe, words.overrides, plugin::load_plugins));
  std::cout << (words.json ? to_json(planned.plan).dump(1) + "\n" : planner::plan_text(planned.plan));
  return base::ExitCode::done;
}

base::ExitCode emit_plan(const RunWords& words, EmitKind kind) {
  const planner::PlannedRun planned = planner::make_plan(recipe::read_recipe(words.recipe, words.overrides, plugin::load_plugins));
  std::cout << emit_launch(
      planned.plan, kind,
      {fs::read_symlink("/proc/self/exe"), words.recipe.string(), words.overrides});
  return base::ExitCode::done;
}

base::ExitCode run_recipe(const RunWords& words) {
  planner::PlannedRun planned = planner::make_plan(recipe::read_recipe(words.recipe, words.overrides, plugin::load_plugins));
  plan::check_can_begin_without(planned.plan, words.without);
  const fs::path path = fs::path("runs") / planned.plan.recipe.name;
  if (is_requeued(planned.plan, path)) return run_allocated(path, words.json);
  hosts::SlurmJob::refuse_live(path);
  control::RunDirectory directory = control::RunDirectory::create(
      path, words.replace ? control::RunDirectory::Existing::move_aside : control::RunDirectory::Existing::refuse);
  const plan::RunFile run = prepare_directory(directory, std::move(planned));
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::slurm) {
    return give_to_slurm(std::move(directory), run.plan, words.json);
  }
  console::TextPump pump(STDOUT_FILENO);
  console::Console console(pump, console_options(words.json));
  if (directory.moved_aside()) {
    console.note(fmt::format("the earlier run is now {}", directory.moved_aside()->string()));
  }
  console.plan(planner::plan_text(run.plan), to_json(run.plan).dump());
  launch::LaunchOptions options;
  options.model = model_questions();
  options.without = {words.without.begin(), words.without.end()};
  return launch_and_show(directory, run, options, console);
}

base::ExitCode run_prepared(const RunWords& words) {
  control::RunDirectory directory = control::RunDirectory::open(words.recipe);
  const plan::RunFile run = plan::read_run_file(directory.plan(), plugin::load_plugins);
  console::TextPump pump(STDOUT_FILENO);
  console::Console console(pump, console_options(words.json));
  console.plan(planner::plan_text(run.plan), to_json(run.plan).dump());
  return launch_and_show(directory, run, {}, console);
}

base::ExitCode resume_run(const RunWords& words) {
  if (!words.in_job) hosts::SlurmJob::refuse_live(words.recipe);
  control::RunDirectory directory = control::RunDirectory::open(words.recipe);
  plan::RunFile run = plan::read_run_file(directory.plan(), plugin::load_plugins);
  console::TextPump pump(STDOUT_FILENO);
  console::Console console(pump, console_options(words.json));
  const auto say = [&console](const control::Event& event) { console.event("the launcher", event); };
  const std::string recovered = launch::recover_checkpoint(directory, run, model_questions(), say);
  const auto newest = choose(directory, recovered);
  if (!newest) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no complete checkpoint to resume from; run its recipe again "
                    "with --replace",
                    directory.path().string()));
  }
  if (!recovered.empty()) console.note(recovered);
  const store::Manifest& manifest = newest->checkpoint.manifest;
  const auto differences = store::differences(manifest, plan::manifest_for(run, 0, manifest.step));
  if (!differences.empty()) {
    std::string all;
    for (const std::string& difference : differences) all += "\n  " + difference;
    throw base::UserError(base::ExitCode::mismatch,
                    fmt::format("{} was made by another run than {} describes:{}",
                                newest->checkpoint.path.string(), directory.plan().string(), all));
  }
  if (number(manifest.step) >= run.plan.steps) {
    console.note(fmt::format("{} is complete: all {} steps are done", directory.path().string(),
                             run.plan.steps));
    return base::ExitCode::done;
  }
  if (!words.overrides.empty()) {
    run = changed_run(directory, run, words.overrides);
    write_files(directory, run);
  }
  plan::check_can_begin_without(run.plan, words.without);
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::slurm && !words.in_job) {
    return give_to_slurm(std::move(directory), run.plan, words.json);
  }
  store::set_aside_newer(directory.path(), manifest.step);
  plan::forget_newer_steps(directory.metrics(), manifest.step);
  if (!newest->warning.empty()) console.note(newest->warning);
  console.plan(planner::plan_text(run.plan), to_json(run.plan).dump());
  console.note(fmt::format("going on from step {} ({})", number(manifest.step),
                           newest->checkpoint.path.string()));
  launch::LaunchOptions options;
  options.model = model_questions();
  options.resume = fs::absolute(newest->checkpoint.path).string();
  options.from = manifest.step;
  options.caches = plan::decide_caches(manifest, run.plan);
  options.without = {words.without.begin(), words.without.end()};
  options.sync = plan::decide_sync(manifest, run.plan, options.without);
  return launch_and_show(directory, run, options, console);
}

}  // namespace strait::app
