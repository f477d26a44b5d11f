#pragma once

#include "stages/step_messages.h"

namespace strait::stages {

// What the stages of a step report: the norm of all gradients is 5.
inline StepReport example_report() {
  StepReport report;
  report.step = store::Step{41};
  report.loss = 1.25;
  report.target_tokens = 77;
  report.squared_norms = {{3, 9.0}, {5, 16.0}};
  return report;
}

}  // namespace strait::stages
