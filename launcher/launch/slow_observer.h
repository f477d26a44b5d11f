#pragma once

#include <string>
#include <vector>

#include "launcher/control/run_observer.h"
#include "launcher/control/slow_parts.h"
#include "launcher/control/slow_steps.h"
#include "launcher/launch/model_questions.h"
#include "launcher/plan/plan.h"

namespace strait::launch {

// What the plan says of its links and processes. Of links only where it knows their speed:
// measured, simulated, or stated in the recipe.
control::ExpectedSpeeds expected_speeds(const plan::Plan& plan, const ModelQuestions& model);

// Reports to the other observers of a run which links and processes are slow (control::SlowParts),
// and which steps (control::SlowSteps).
class SlowObserver : public control::RunObserver {
 public:
  SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
               std::vector<control::RunObserver*> observers);

  void step(const control::StepLine& line) override;

 private:
  control::SlowParts slow_;
  control::SlowSteps slow_steps_;
  const control::RunObservers observers_;
};

}  // namespace strait::launch
