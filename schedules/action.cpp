#include "schedules/action.h"

namespace strait::schedules {
namespace {

const char* action_word(Work work) {
  switch (work) {
    case Work::forward:
      return "forward ";
    case Work::backward:
      return "backward ";
    case Work::weight_gradient:
      return "weight gradient ";
  }
  return "unknown work ";
}

}  // namespace

std::string describe(const Action& action) {
  std::string text = action_word(action.work) + std::to_string(number(action.micro_batch));
  if (number(action.chunk) != 0) text += " of chunk " + std::to_string(number(action.chunk));
  return text;
}

}  // namespace strait::schedules
