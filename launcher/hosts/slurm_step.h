#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// The way to the nodes of the Slurm job that we are in: one srun starts a keeper on each, and gives
// all of them all jobs on stdin; each takes its own by its number. It is started when the last call
// has been handed its job, and stays as long as any call: srun's end is the keepers' end.
//
// `run` is the run's directory, on a file system that the nodes share: keepers keep their files
// there. UserError: we are in no job, or it has fewer nodes than the plan.
std::vector<std::unique_ptr<AgentStarter>> slurm_starters(const plan::Plan& plan,
                                                   const std::filesystem::path& run);

}  // namespace strait::hosts
