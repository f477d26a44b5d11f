#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// Starters for the nodes of the Slurm job that this process is in. One srun starts the agents of
// all nodes and gives each of them all jobs on stdin; an agent takes the one with its task number.
// srun starts with the last job, and is waited for when the last starter is destroyed.
//
// `run` is the run's directory, on a file system that the nodes share; agents keep their files
// there. UserError: not in a job, or the job has fewer nodes than the plan.
std::vector<std::unique_ptr<AgentStarter>> slurm_starters(const plan::Plan& plan,
                                                          const std::filesystem::path& run);

}  // namespace strait::hosts
