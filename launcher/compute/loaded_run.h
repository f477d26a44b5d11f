#pragma once

#include "launcher/cli/report_files.h"
#include "launcher/cli/run_options.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/model_questions.h"

namespace strait::planner {
struct PlannedRun;
}

// Recipes and runs with their plugins loaded, and what a launch asks of the model.
namespace strait::compute {

// The recipe with its overrides; with the plan in a run's directory. Both load the plugins.
recipe::Recipe read_recipe(const cli::RunOptions& options);
plan::RunFile load_run(const std::filesystem::path& run);

// What the losses of a run have said so far.
run::LossHistory losses_of(const std::filesystem::path& run, const plan::Plan& plan);

// Prints what became of records, where the user looks before a run.
void warn_about_data(const planner::PlannedRun& planned);

// One step as the planner's simulator predicts it, of the slowest replica: compute and links.
// Without rows: the plan has no processes.
cli::StepTimeline predicted_step(const plan::Plan& plan);

// The planner's functions, for a launch.
run::ModelQuestions model_questions();

}  // namespace strait::compute
