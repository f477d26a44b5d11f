#include "schedules/action.h"

#include <algorithm>

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

std::int64_t most_held(const ActionList& list, std::span<const std::int64_t> bytes) {
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const Action& action : list) {
    const std::int64_t of_pass = bytes[static_cast<std::size_t>(number(action.chunk))];
    if (action.work == Work::forward) held += of_pass;
    if (action.work == Work::backward) held -= of_pass;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace strait::schedules
