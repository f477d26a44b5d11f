#pragma once

#include "launcher/base/errors.h"
#include "launcher/reach/reach_message.h"

namespace strait::worker {

// Runs one stage process: reads its job from `job_descriptor` (stdin), loads, connects its links,
// trains, exits. A failure is reported to the coordinator in one sentence and becomes the exit
// code. When the descriptor closes, the launcher is gone and the process exits.
base::ExitCode run_stage_process(int job_descriptor);

// Measures compute and memory speed for the forecast: one block of the model with a micro-batch of
// the recipe's size, forward and backward, for about a second and with the threads of a stage; then
// copies of 64 MiB. Sets the number of threads of libtorch. ConfigError: invalid model_config.
reach::ComputeMeasured measure_compute(const reach::MeasureCompute& order);

// The child's side of measure_in_subprocess(): reads the order up to the end of `input`, and writes
// the result, or the error, as one line.
base::ExitCode serve_measurement(int input, int output);

}  // namespace strait::worker
