#pragma once

#include "launcher/launch/model_questions.h"

namespace strait::app {

// The planner's answers to what a launch asks.
launch::ModelQuestions model_questions();

}  // namespace strait::app
