#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/run/model_questions.h"
#include "launcher/run/run_observer.h"
#include "launcher/run/slow_parts.h"
#include "launcher/run/slow_steps.h"

namespace strait::run {

// What the plan says of its links and processes. Of links only where it knows their speed:
// measured, simulated, or stated in the recipe.
ExpectedSpeeds expected_speeds(const plan::Plan& plan, const ModelQuestions& model);

// Reports to the other observers of a run which links and processes are slow (SlowParts),
// and which steps (SlowSteps).
class SlowObserver : public RunObserver {
 public:
  SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
               std::vector<RunObserver*> observers);

  void step(const StepLine& line) override;

 private:
  SlowParts slow_;
  SlowSteps slow_steps_;
  const RunObservers observers_;
};

}  // namespace strait::run
