#pragma once

#include "launcher/base/errors.h"
#include "launcher/reach/reach_message.h"

namespace strait::worker {

// How fast this machine computes what a stage computes: one block of the model with a micro-batch
// of the recipe's size, forward and backward, again and again for about a second, by as many
// threads as a stage has; then how fast memory is copied. Uses the calling thread's threads of
// libtorch. ConfigError where the model is none.
reach::ComputeMeasured measure_compute(const reach::MeasureCompute& order);

// The other end of measure_in_subprocess(): reads the order up to the end of `input`, and writes
// the answer as one line, also where it is that this could not be done.
base::ExitCode answer_measure(int input, int output);

}  // namespace strait::worker
