#pragma once

#include <string>

#include "launcher/reach/reach_message.h"

namespace strait::reach {

// Has `strait-stage --measure` answer, a process of its own that ends with it: a keeper has no
// libtorch. Waits for it, less than a minute. UserError: it could not, with its own last words.
ComputeMeasured measure_aside(const std::string& program, const MeasureCompute& order);

}  // namespace strait::reach
