// Proof by exhaustion: every list of every schedule, for 1-64 stages, 1-256 micro-batches and
// depths 0-2, and with several chunks a stage for most of these shapes, is complete, in the
// promised order, within the promised memory, and the lists of a pipeline finish together. Knows
// nothing of simulate.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "schedules/action_lists.h"
#include "schedules/schedule.h"

namespace strait::schedules {

void PrintTo(const Schedule& schedule, std::ostream* out) { *out << schedule.name; }

namespace {

constexpr int kMostStages = 64;
constexpr int kMostMicroBatches = 256;
constexpr int kDeepest = 2;

// In every chunk in this order, each once and nothing else, and never more held than promised.
// Returns what is wrong.
const char* fault_in(const ActionList& list, const PipelineShape& shape, int promised) {
  const auto chunks = static_cast<std::size_t>(shape.chunks);
  std::vector<int> forwards(chunks);
  std::vector<int> backwards(chunks);
  std::vector<int> weight_gradients(chunks);
  const auto split = [&](std::size_t c) {
    return std::ranges::any_of(list, [c](const Action& action) {
      return action.work == Work::weight_gradient && number(action.chunk) == static_cast<int>(c);
    });
  };
  std::vector<bool> splits;
  for (std::size_t c = 0; c < chunks; ++c) splits.push_back(split(c));
  int held = 0;
  int peak = 0;
  for (const Action& action : list) {
    const int m = number(action.micro_batch);
    const auto c = static_cast<std::size_t>(number(action.chunk));
    if (c >= chunks) return "a chunk that does not exist";
    if (action.work == Work::forward) {
      if (m != forwards[c]++) return "a forward out of order";
      ++held;
    } else if (action.work == Work::backward) {
      if (m != backwards[c]++) return "a backward out of order";
      if (m >= forwards[c]) return "a backward before its forward";
      if (!splits[c]) --held;
    } else {
      if (m != weight_gradients[c]++) return "a weight gradient out of order";
      if (m >= backwards[c]) return "a weight gradient before its backward";
      --held;
    }
    peak = std::max(peak, held);
  }
  for (std::size_t c = 0; c < chunks; ++c) {
    if (forwards[c] != shape.micro_batches || backwards[c] != shape.micro_batches ||
        (splits[c] && weight_gradients[c] != shape.micro_batches)) {
      return "not every micro-batch once";
    }
  }
  return peak <= promised ? nullptr : "more in flight than promised";
}

// Stages that wait for nothing but messages finish unless somebody waits for something that its
// maker does not get to. Both kinds of message arrive in index order (fault_in has shown it), so
// counting them is enough.
bool finishes(const std::vector<ActionList>& lists, int chunks) {
  const std::size_t stages = lists.size();
  const std::size_t positions = stages * static_cast<std::size_t>(chunks);
  std::vector<std::size_t> next(stages, 0);
  std::vector<int> forwards(positions, 0);
  std::vector<int> backwards(positions, 0);
  bool moved = true;
  while (moved) {
    moved = false;
    // Down and up again: a wave of forwards, then a wave of backwards, in one round.
    for (std::size_t i = 0; i < 2 * stages; ++i) {
      const std::size_t s = i < stages ? i : 2 * stages - 1 - i;
      for (; next[s] < lists[s].size(); ++next[s], moved = true) {
        const Action& action = lists[s][next[s]];
        const std::size_t p = static_cast<std::size_t>(number(action.chunk)) * stages + s;
        if (action.work == Work::forward) {
          if (p > 0 && forwards[p - 1] <= forwards[p]) break;
          ++forwards[p];
        } else if (action.work == Work::backward) {
          if (p + 1 < positions && backwards[p + 1] <= backwards[p]) break;
          ++backwards[p];
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
  const std::vector<ActionList> lists = action_lists(schedule, shape);
  const std::string what = std::string(schedule.name) + " with " + std::to_string(shape.stages) +
                           " stages, " + std::to_string(shape.micro_batches) +
                           " micro-batches, depth " + std::to_string(shape.depth) + ", " +
                           std::to_string(shape.chunks) + " chunks";
  for (int s = 0; s < shape.stages; ++s) {
    const int promised = schedule.most_in_flight(shape, StageIndex{s});
    const char* fault = fault_in(lists[static_cast<std::size_t>(s)], shape, promised);
    ASSERT_EQ(fault, nullptr) << fault << ": stage " << s << " of " << what;
  }
  ASSERT_TRUE(finishes(lists, shape.chunks)) << what;
}

class Completion : public testing::TestWithParam<Schedule> {};

INSTANTIATE_TEST_SUITE_P(OfEverySchedule, Completion,
                         testing::ValuesIn(catalogue().all().begin(), catalogue().all().end()),
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

TEST(CompletionOfChunks, InterleavedWithSeveralChunksToo) {
  const Schedule& schedule = schedule_named("interleaved");
  for (int chunks = 2; chunks <= 4; ++chunks) {
    for (int depth = 0; depth <= kDeepest + 1; ++depth) {
      for (int stages = 1; stages <= kMostStages; stages += stages < 13 ? 1 : 17) {
        // All remainders of small groups, then some of large ones.
        for (int m = 1; m <= kMostMicroBatches; m += m < 80 ? 1 : 19) {
          prove(schedule, {stages, m, depth, chunks});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A forward pass alone needs the same of every stage's list.
TEST(ForwardOnly, FinishesInEveryShapeAndEveryChunkInOrder) {
  for (int chunks = 1; chunks <= 4; ++chunks) {
    for (int stages = 1; stages <= 9; ++stages) {
      for (int m = 1; m <= 40; ++m) {
        const PipelineShape shape{stages, m, 0, chunks};
        std::vector<ActionList> lists;
        for (int s = 0; s < stages; ++s) lists.push_back(forward_only(shape, StageIndex{s}));
        std::vector<int> done(static_cast<std::size_t>(chunks));
        for (const Action& action : lists.front()) {
          ASSERT_EQ(action.work, Work::forward);
          ASSERT_EQ(number(action.micro_batch),
                    done.at(static_cast<std::size_t>(number(action.chunk)))++);
        }
        ASSERT_EQ(done, std::vector<int>(static_cast<std::size_t>(chunks), m));
        ASSERT_TRUE(finishes(lists, chunks)) << stages << " stages, " << m << " micro-batches";
      }
    }
  }
}

TEST(CompletionProof, SeesEachKindOfFault) {
  const Action f0{Work::forward, ChunkIndex{0}, MicroBatch{0}};
  const Action f1{Work::forward, ChunkIndex{0}, MicroBatch{1}};
  const Action b0{Work::backward, ChunkIndex{0}, MicroBatch{0}};
  const Action b1{Work::backward, ChunkIndex{0}, MicroBatch{1}};
  const Action w0{Work::weight_gradient, ChunkIndex{0}, MicroBatch{0}};
  const Action w1{Work::weight_gradient, ChunkIndex{0}, MicroBatch{1}};
  const PipelineShape two{.micro_batches = 2};
  EXPECT_EQ(fault_in({f0, b0, f1, b1}, two, 1), nullptr);
  EXPECT_EQ(fault_in({f0, b0, w0, f1, b1, w1}, two, 1), nullptr);
  EXPECT_STREQ(fault_in({f0, b0, f1, w0, b1, w1}, two, 1), "more in flight than promised");
  EXPECT_STREQ(fault_in({f0, f1, b0, b1, w1, w0}, two, 2), "a weight gradient out of order");
  EXPECT_STREQ(fault_in({f0, f1, w0, b0, b1, w1}, two, 2), "a weight gradient before its backward");
  EXPECT_STREQ(fault_in({f0, f1, b0, b1, w0}, two, 2), "not every micro-batch once");
  EXPECT_STREQ(fault_in({f1, b0, f0, b1}, two, 2), "a forward out of order");
  EXPECT_STREQ(fault_in({f0, f1, b1, b0}, two, 2), "a backward out of order");
  EXPECT_STREQ(fault_in({b0, f0, f1, b1}, two, 2), "a backward before its forward");
  EXPECT_STREQ(fault_in({f0, b0, f1}, two, 2), "not every micro-batch once");
  EXPECT_STREQ(fault_in({f0, f1, b0, b1}, two, 1), "more in flight than promised");
  EXPECT_TRUE(finishes({{f0, f1, b0, b1}, {f0, b0, f1, b1}}, 1));
  EXPECT_FALSE(finishes({{f0, b0, f1, b1}, {f0, f1, b0, b1}}, 1));
  const Action next_f0{Work::forward, ChunkIndex{1}, MicroBatch{0}};
  const Action next_b0{Work::backward, ChunkIndex{1}, MicroBatch{0}};
  const PipelineShape chunks{.stages = 2, .chunks = 2};
  EXPECT_EQ(fault_in({f0, next_f0, next_b0, b0}, chunks, 2), nullptr);
  EXPECT_STREQ(fault_in({f0, b0}, chunks, 2), "not every micro-batch once");
  EXPECT_STREQ(fault_in({f0, next_f0, next_b0, b0}, two, 2), "a chunk that does not exist");
  const ActionList there_and_back{f0, next_f0, next_b0, b0};
  EXPECT_TRUE(finishes({there_and_back, there_and_back}, 2));
  // The second chunk's input has to come around first.
  EXPECT_FALSE(finishes({{next_f0, f0, next_b0, b0}, there_and_back}, 2));
}

}  // namespace
}  // namespace strait::schedules
