#include <strait/partition.h>

#include <algorithm>

// Cuts a model so that the stage that needs most memory needs as little as can be: for machines
// that are short of memory rather than of time.
namespace {

using namespace strait::partition;

// Every stage takes layers while it stays within the limit, and leaves one for each stage behind
// it; the last takes what is left.
Assignment filled(const Question& question, std::int64_t limit) {
  const int layers = static_cast<int>(question.model.layers.size());
  Assignment answer;
  int next = 0;
  for (int s = 0; s < question.stages; ++s) {
    const int behind = question.stages - 1 - s;
    Layers taken{next, behind == 0 ? layers - 1 : next};
    while (taken.last + 1 + behind < layers &&
           question.stage_bytes(s, {{taken.first, taken.last + 1}}) <= limit) {
      ++taken.last;
    }
    answer.stages.push_back({{taken}});
    next = taken.last + 1;
  }
  return answer;
}

std::int64_t most_bytes(const Question& question, const Assignment& answer) {
  std::int64_t most = 0;
  for (std::size_t s = 0; s < answer.stages.size(); ++s) {
    most = std::max(most, question.stage_bytes(s, answer.stages[s].chunks));
  }
  return most;
}

Assignment memory_first(const Question& question) {
  const Layers all{0, static_cast<int>(question.model.layers.size()) - 1};
  std::int64_t too_low = 0;
  std::int64_t enough = question.stage_bytes(0, {all});
  while (enough - too_low > 1) {
    const std::int64_t limit = too_low + (enough - too_low) / 2;
    (most_bytes(question, filled(question, limit)) <= limit ? enough : too_low) = limit;
  }
  return filled(question, enough);
}

}  // namespace

STRAIT_PARTITION("memory_first", memory_first)
