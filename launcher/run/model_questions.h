#pragma once

#include "framework/store/checkpoint.h"
#include "launcher/hosts/needed_group.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/speeds.h"
#include "launcher/recipe/stage_job.h"

namespace strait::run {

// Functions of the rooms above that a launch needs. `cli` passes them in, because the planner links
// libtorch, and this room does not.
struct ModelQuestions {
  // The same run by another recipe. `speeds`: in place of those in hosts.links, if not null.
  // UserError, among others `bad_input` where the schedule or the model takes no such number of
  // stages.
  std::function<plan::RunFile(const plan::RunFile& run, const recipe::Recipe& recipe,
                              const recipe::LinkTable* speeds)>
      planned_again;
  // Writes the report of a run into its directory, from the files there. Called again, by one
  // thread at a time, it reads only what is new.
  std::function<void(const std::filesystem::path& run, const plan::Plan& plan)> write_report;
  // Seconds of a step, with links of these speeds.
  std::function<double(const plan::Plan& plan, const plan::PathSpeeds& speed)> forecast_step;
  // Seconds that each process computes in a step.
  std::function<std::map<net::ProcessName, double>(const plan::Plan& plan)> compute_seconds;
  // Files that the processes on a host read before they begin.
  std::function<std::vector<transfer::NeededGroup>(const plan::Plan& plan, std::size_t host,
                                                   const std::vector<plan::PluginCopy>& plugins,
                                                   bool weights)>
      needed_files;
  // The loss of a guess among all tokens.
  std::function<double(const plan::Plan& plan)> guess_loss;
  // UserError: replicas of a stage are on devices that do not keep them equal.
  std::function<void(const plan::Plan& plan)> check_replica_devices;
  // What they read of a complete checkpoint.
  std::function<transfer::NeededGroup(const plan::Plan& plan, std::size_t host,
                                      const std::filesystem::path& checkpoint, store::Part part)>
      needed_checkpoint;
};

}  // namespace strait::run
