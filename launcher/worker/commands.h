#pragma once

#include "launcher/base/errors.h"
#include "launcher/hosts/path_request.h"

namespace strait::worker {

// Runs one stage process: reads its job from `job_descriptor` (stdin), loads, connects its links,
// trains, exits. Reports a failure to the coordinator in one sentence and turns it into the exit
// code. Exits when the descriptor closes, because the launcher has then exited.
base::ExitCode run_stage_process(int job_descriptor);

// Measures compute and memory speed for the forecast: for about a second, forward and backward of
// one block of the model with a micro-batch of the recipe's size and the threads of a stage; then
// copies of 64 MiB. Sets the number of threads of libtorch. ConfigError: invalid model_config.
hosts::ComputeMeasured measure_compute(const hosts::MeasureCompute& order);

// The child's side of measure_in_subprocess(): reads the order up to the end of `input`, and writes
// the result or the error in one line.
base::ExitCode serve_measurement(int input, int output);

}  // namespace strait::worker
