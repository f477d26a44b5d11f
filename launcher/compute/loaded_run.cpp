#include "launcher/compute/loaded_run.h"

#include "launcher/base/run_file_names.h"
#include "launcher/compute/changed_run.h"
#include "launcher/planner/needed_files.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/plugin/plugin_file.h"
#include "stages/partition.h"

namespace strait::compute {
namespace {

const char* work_word(schedules::Work work) {
  if (work == schedules::Work::forward) return "forward";
  return work == schedules::Work::backward ? "backward" : "weight gradient";
}

}  // namespace

recipe::Recipe read_recipe(const cli::RunOptions& options) {
  return recipe::read_recipe(options.recipe, options.overrides, plugin::load_plugins);
}

plan::RunFile load_run(const std::filesystem::path& run) {
  return plan::read_run_file(run / base::kPlanFile, plugin::load_plugins);
}

run::LossHistory losses_of(const std::filesystem::path& run, const plan::Plan& plan) {
  return run::read_losses(run, planner::guess_loss(plan));
}

void warn_about_data(const planner::PlannedRun& planned) {
  std::vector<std::string> notes = planned.train.notes;
  if (planned.eval) std::ranges::copy(planned.eval->notes, std::back_inserter(notes));
  for (const std::string& note : notes) cli::warn(note);
}

cli::StepTimeline predicted_step(const plan::Plan& plan) {
  cli::StepTimeline timeline;
  if (plan.processes.empty()) return timeline;
  const auto speed = [&plan](const plan::Plan::Link& /*link*/, std::size_t from, std::size_t to) {
    return plan::path_speed(plan, from, to);
  };
  schedules::Forecast slowest;
  std::size_t replica = 0;
  const std::vector<planner::StepCosts> replicas = planner::costs_of_replicas(plan, speed);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    schedules::Forecast one = planner::simulated_step(replicas[i], plan.depth);
    if (one.seconds <= slowest.seconds) continue;
    slowest = std::move(one);
    replica = i;
  }
  timeline.seconds = slowest.seconds;
  for (std::int64_t stage = 0; stage < plan.recipe.pipeline.stages; ++stage) {
    const net::ProcessName name{static_cast<std::uint32_t>(stage),
                                static_cast<std::uint32_t>(replica)};
    timeline.rows.push_back({name.describe(), {}});
  }
  for (const schedules::ActionSpan& span : slowest.spans) {
    timeline.rows.at(static_cast<std::size_t>(number(span.stage)))
        .spans.push_back({"compute", work_word(span.action.work), span.start, span.end - span.start,
                          number(span.action.micro_batch)});
  }
  for (const schedules::TransferSpan& span : slowest.transfers) {
    timeline.rows.at(static_cast<std::size_t>(number(span.from)))
        .spans.push_back({"link", span.from < span.to ? "activation" : "gradient", span.start,
                          span.end - span.start, number(span.micro_batch)});
  }
  return timeline;
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
          .write_report =
              [files = std::make_shared<cli::ReportFiles>()](const std::filesystem::path& run,
                                                             const plan::Plan& plan) {
                files->write(
                    run, cli::report_plan(plan, planner::plan_text(plan), predicted_step(plan)));
              },
          .forecast_step = planner::forecast_step,
          .compute_seconds = planner::steady_compute_seconds,
          .needed_files = planner::needed_files,
          .guess_loss = planner::guess_loss,
          .check_replica_devices = planner::check_replica_devices,
          .needed_checkpoint = planner::needed_checkpoint};
}

}  // namespace strait::compute
