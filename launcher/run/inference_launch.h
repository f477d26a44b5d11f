#pragma once

#include "launcher/run/run_launch.h"

namespace strait::run {

// Starts the stages of a run on its hosts with the weights of the checkpoint `options.resume`, to
// answer `options.inference`, and ends them once it has finished. `run` is of
// planner::inference_plan. Of the run's files only the generation and the logs change. Returns how
// it ended. UserError: it could not start.
Outcome launch_inference(RunDirectory& directory, const plan::RunFile& run,
                         const LaunchOptions& options);

}  // namespace strait::run
