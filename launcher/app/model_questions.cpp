#include "launcher/app/model_questions.h"

#include "launcher/planner/needed_files.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/step_forecast.h"

namespace strait::app {

launch::ModelQuestions model_questions() {
  return {.plan_text = planner::plan_text,
          .forecast_step = planner::forecast_step,
          .needed_files = planner::needed_files,
          .needed_checkpoint = planner::needed_checkpoint};
}

}  // namespace strait::app
