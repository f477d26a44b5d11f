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

bool splits_backward(const ActionList& list, ChunkIndex chunk) {
  return std::ranges::any_of(list, [chunk](const Action& action) {
    return action.work == Work::weight_gradient && action.chunk == chunk;
  });
}

ActionList sliced(const ActionList& list, int slices) {
  ActionList result;
  result.reserve(list.size() * static_cast<std::size_t>(slices));
  for (const Action& action : list) {
    for (int i = 0; i < slices; ++i) {
      const int slice = action.work == Work::forward ? i : slices - 1 - i;
      Action& added = result.emplace_back(action);
      added.micro_batch = MicroBatch{number(action.micro_batch) * slices + slice};
    }
  }
  return result;
}

int most_waiting(const ActionList& list, ChunkIndex chunk) {
  std::vector<PassBytes> one(static_cast<std::size_t>(number(chunk)) + 1);
  one.back().forward = 1;
  ActionList own;
  std::ranges::copy_if(list, std::back_inserter(own),
                       [&](const Action& action) { return action.chunk == chunk; });
  return static_cast<int>(most_held(own, one));
}

std::int64_t most_held(const ActionList& list, std::span<const PassBytes> bytes, int most_waiting) {
  std::vector<bool> splits;
  for (std::size_t c = 0; c < bytes.size(); ++c) {
    splits.push_back(splits_backward(list, static_cast<ChunkIndex>(c)));
  }
  std::vector<int> waiting(bytes.size());
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const Action& action : list) {
    const auto chunk = static_cast<std::size_t>(number(action.chunk));
    const PassBytes& pass = bytes[chunk];
    if (action.work == Work::forward && ++waiting[chunk] <= most_waiting) held += pass.forward;
    if (action.work == Work::backward && waiting[chunk]-- <= most_waiting) held -= pass.forward;
    if (action.work == Work::backward && splits[chunk]) held += pass.weight_gradient;
    if (action.work == Work::weight_gradient) held -= pass.weight_gradient;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace strait::schedules
