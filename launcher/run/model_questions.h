#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/speeds.h"
#include "launcher/plan/stage_job.h"
#include "launcher/transfer/needed_group.h"

namespace strait::run {

// Functions of the planner that a launch needs. The app passes them in, because the planner links
// libtorch, and this room and the agents on hosts do not.
struct ModelQuestions {
  // The plan for people, as `strait plan` prints it.
  std::function<std::string(const plan::Plan& plan)> plan_text;
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
