#include "launcher/cli/run_options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "launcher/base/run_file_names.h"
#include "launcher/cli/changed_run.h"
#include "launcher/cli/report_files.h"
#include "launcher/planner/needed_files.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/plugin/plugin_file.h"
#include "stages/partition.h"

namespace strait::cli {

CLI::Option* add_run_argument(CLI::App* verb, std::filesystem::path& run) {
  return verb->add_option_function<std::string>(
      "run", [&run](const std::string& given) { run = run_directory(given); },
      "its directory, runs/NAME, or NAME alone");
}

std::filesystem::path run_directory(const std::filesystem::path& given) {
  const std::filesystem::path named = std::filesystem::path("runs") / given;
  std::error_code none;
  const bool is_bare = given.has_filename() && !given.has_parent_path();
  const bool is_here = std::filesystem::exists(given / base::kPlanFile, none);
  return is_bare && !is_here && std::filesystem::is_directory(named, none) ? named : given;
}

void add_overrides(CLI::App* verb, std::vector<std::string>& overrides) {
  verb->add_option("--set", overrides,
                   "key=value instead of the recipe's; key= for its default; repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

void add_run_options(CLI::App* verb, const std::shared_ptr<RunOptions>& options) {
  add_overrides(verb, options->overrides);
  verb->add_flag("--json", options->json, "machine-readable output");
}

void add_color(CLI::App* verb, std::string& color) {
  verb->add_option("--color", color, "auto: on a terminal, unless NO_COLOR is set")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
}

CLI::Option* add_without(CLI::App* verb, const std::shared_ptr<RunOptions>& options) {
  return verb
      ->add_option("--without", options->without,
                   "start without this replica; `strait resume RUN --replica` adds it later "
                   "(sync.on_loss = \"continue\"); repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

recipe::Recipe read_recipe(const RunOptions& options) {
  return recipe::read_recipe(options.recipe, options.overrides, plugin::load_plugins);
}

plan::RunFile read_run(const std::filesystem::path& run) {
  return plan::read_run_file(run / base::kPlanFile, plugin::load_plugins);
}

run::LossHistory losses_of(const std::filesystem::path& run, const plan::Plan& plan) {
  return run::read_losses(run, planner::guess_loss(plan));
}

void warn(const std::string& text) {
  if (!text.empty()) std::cerr << "note: " << text << '\n';
}

void warn_about_data(const planner::PlannedRun& planned) {
  std::vector<std::string> notes = planned.train.notes;
  if (planned.eval) std::ranges::copy(planned.eval->notes, std::back_inserter(notes));
  for (const std::string& note : notes) warn(note);
}

run::ModelQuestions model_questions() {
  return {.planned_again =
              [](const plan::RunFile& run, const recipe::Recipe& recipe,
                 const recipe::LinkTable* speeds) {
                try {
                  return changed_run(run, recipe, speeds);
                } catch (const stages::PartitionError& error) {
                  throw base::UserError(base::ExitCode::bad_input, error.what());
                }
              },
          .write_report = [files = std::make_shared<ReportFiles>()](
                              const std::filesystem::path& run,
                              const plan::Plan& plan) { files->write(run, plan); },
          .forecast_step = planner::forecast_step,
          .compute_seconds = planner::steady_compute_seconds,
          .needed_files = planner::needed_files,
          .guess_loss = planner::guess_loss,
          .check_replica_devices = planner::check_replica_devices,
          .needed_checkpoint = planner::needed_checkpoint};
}

}  // namespace strait::cli
