// Proof by exhaustion: every list of every schedule, for 1-64 stages, 1-256 micro-batches and
// depths 0-2, is complete, in the promised order, within the promised memory, and the lists of a
// pipeline finish together. Knows nothing of simulate.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "schedules/schedule.h"

namespace strait::schedules {

void PrintTo(const Schedule& schedule, std::ostream* out) { *out << schedule.name; }

namespace {

constexpr int kMostStages = 64;
constexpr int kMostMicroBatches = 256;
constexpr int kDeepest = 2;

// In this order, each once and nothing else, and never more held than promised. Returns what is
// wrong.
const char* fault_in(const ActionList& list, int micro_batches, int promised) {
  int forwards = 0;
  int backwards = 0;
  int peak = 0;
  for (const Action& action : list) {
    const int m = number(action.micro_batch);
    if (number(action.chunk) != 0) return "a chunk that does not exist";
    if (action.work == Work::forward) {
      if (m != forwards++) return "a forward out of order";
    } else if (action.work == Work::backward) {
      if (m != backwards++) return "a backward out of order";
      if (m >= forwards) return "a backward before its forward";
    } else {
      return "unexpected work";
    }
    peak = std::max(peak, forwards - backwards);
  }
  if (forwards != micro_batches || backwards != micro_batches) return "not every micro-batch once";
  return peak <= promised ? nullptr : "more in flight than promised";
}

// Stages that wait for nothing but messages finish unless somebody waits for something that its
// maker does not get to. Both kinds of message arrive in index order (fault_in has shown it), so
// counting them is enough.
bool finishes(const std::vector<ActionList>& lists) {
  const std::size_t stages = lists.size();
  std::vector<std::size_t> next(stages, 0);
  std::vector<int> forwards(stages, 0);
  std::vector<int> backwards(stages, 0);
  bool moved = true;
  while (moved) {
    moved = false;
    // Down and up again: a wave of forwards, then a wave of backwards, in one round.
    for (std::size_t i = 0; i < 2 * stages; ++i) {
      const std::size_t s = i < stages ? i : 2 * stages - 1 - i;
      for (; next[s] < lists[s].size(); ++next[s], moved = true) {
        if (lists[s][next[s]].work == Work::forward) {
          if (s > 0 && forwards[s - 1] <= forwards[s]) break;
          ++forwards[s];
        } else {
          if (s + 1 < stages && backwards[s + 1] <= backwards[s]) break;
          ++backwards[s];
        }
      }
    }
  }
  for (std::size_t s = 0; s < stages; ++s) {
    if (next[s] != lists[s].size()) return false;
  }
  return true;
}

void prove(const Schedule& schedule, const PipelineShape& shape) {
  std::vector<ActionList> lists = action_lists(schedule, shape);
  for (int s = 0; s < shape.stages; ++s) {
    const int promised = schedule.most_in_flight(shape, StageIndex{s});
    const char* fault = fault_in(lists[static_cast<std::size_t>(s)], shape.micro_batches, promised);
    ASSERT_EQ(fault, nullptr) << fault << ": " << schedule.name << " stage " << s << " of "
                              << shape.stages << ", " << shape.micro_batches
                              << " micro-batches, depth " << shape.depth;
  }
  ASSERT_TRUE(finishes(lists)) << schedule.name << " with " << shape.stages << " stages, "
                               << shape.micro_batches << " micro-batches, depth " << shape.depth;
}

class Completion : public testing::TestWithParam<Schedule> {};

INSTANTIATE_TEST_SUITE_P(OfEverySchedule, Completion,
                         testing::ValuesIn(all_schedules().begin(), all_schedules().end()),
                         [](const auto& each) { return "of_" + std::string(each.param.name); });

TEST_P(Completion, EveryShapeIsCompleteInOrderAndWithinItsPromise) {
  for (int depth = 0; depth <= kDeepest; ++depth) {
    for (int stages = 1; stages <= kMostStages; ++stages) {
      for (int m = 1; m <= kMostMicroBatches; ++m) {
        prove(GetParam(), {stages, m, depth});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CompletionProof, SeesEachKindOfFault) {
  const Action f0{Work::forward, ChunkIndex{0}, MicroBatch{0}};
  const Action f1{Work::forward, ChunkIndex{0}, MicroBatch{1}};
  const Action b0{Work::backward, ChunkIndex{0}, MicroBatch{0}};
  const Action b1{Work::backward, ChunkIndex{0}, MicroBatch{1}};
  EXPECT_EQ(fault_in({f0, b0, f1, b1}, 2, 1), nullptr);
  EXPECT_STREQ(fault_in({f1, b0, f0, b1}, 2, 2), "a forward out of order");
  EXPECT_STREQ(fault_in({f0, f1, b1, b0}, 2, 2), "a backward out of order");
  EXPECT_STREQ(fault_in({b0, f0, f1, b1}, 2, 2), "a backward before its forward");
  EXPECT_STREQ(fault_in({f0, b0, f1}, 2, 2), "not every micro-batch once");
  EXPECT_STREQ(fault_in({f0, f1, b0, b1}, 2, 1), "more in flight than promised");
  EXPECT_TRUE(finishes({{f0, f1, b0, b1}, {f0, b0, f1, b1}}));
  EXPECT_FALSE(finishes({{f0, b0, f1, b1}, {f0, f1, b0, b1}}));
}

}  // namespace
}  // namespace strait::schedules
