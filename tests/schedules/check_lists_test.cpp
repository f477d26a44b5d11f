#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/schedule.h"
#include "tests/refusal_of.h"

namespace strait::schedules::check_lists_test {
namespace {

using testing::HasSubstr;

Action forward(int m) { return {Work::forward, ChunkIndex{0}, MicroBatch{m}}; }
Action backward(int m) { return {Work::backward, ChunkIndex{0}, MicroBatch{m}}; }
Action weight_gradient(int m) { return {Work::weight_gradient, ChunkIndex{0}, MicroBatch{m}}; }

int two(const PipelineShape&, StageIndex) { return 2; }

std::string refusal(ActionList (*list)(const PipelineShape&, StageIndex)) {
  return refusal_of<std::invalid_argument>([&] {
    check_lists({"mine", "", list, two}, {.stages = 2, .micro_batches = 2});
  });
}

TEST(CheckLists, BuiltInSchedulesPassInEveryPlannedShape) {
  for (const Schedule& schedule : catalogue().all()) {
    for (int depth = 0; depth < 4; ++depth) {
      EXPECT_NO_THROW(check_lists(schedule, {.stages = 5, .micro_batches = 7, .depth = depth}));
    }
  }
}

TEST(CheckLists, NamesScheduleStageAndActionOfEachFault) {
  EXPECT_EQ(refusal([](const PipelineShape&, StageIndex) {
              return ActionList{forward(0), forward(1), backward(0), backward(1)};
            }),
            "nothing was refused");
  EXPECT_EQ(refusal([](const PipelineShape&, StageIndex) {
              return ActionList{forward(0), backward(0), forward(1)};
            }),
            "the schedule \"mine\": stage 0 ends after 2 forwards and 1 backwards of 2");
  EXPECT_THAT(refusal([](const PipelineShape&, StageIndex) {
                return ActionList{forward(0), forward(0), backward(0), backward(1)};
              }),
              HasSubstr("stage 0 has forward 0 where 1 is next of 2"));
  EXPECT_THAT(refusal([](const PipelineShape&, StageIndex) {
                return ActionList{forward(0), backward(0), backward(1), forward(1)};
              }),
              HasSubstr("has backward 1 before its forward"));
  EXPECT_THAT(refusal([](const PipelineShape&, StageIndex) {
                return ActionList{forward(0), forward(1), forward(2)};
              }),
              HasSubstr("has forward 2 where 2 is next of 2"));
}

TEST(CheckLists, NamesFaultsOfSplitBackwards) {
  EXPECT_EQ(refusal([](const PipelineShape&, StageIndex stage) {
              // Each stage may split or not.
              return stage == StageIndex{0}
                         ? ActionList{forward(0),         forward(1),  backward(0),
                                      weight_gradient(0), backward(1), weight_gradient(1)}
                         : ActionList{forward(0), forward(1), backward(0), backward(1)};
            }),
            "nothing was refused");
  EXPECT_THAT(refusal([](const PipelineShape&, StageIndex) {
                return ActionList{forward(0), weight_gradient(0)};
              }),
              HasSubstr("stage 0 has weight gradient 0 before its backward"));
  EXPECT_THAT(
      refusal([](const PipelineShape&, StageIndex) {
        return ActionList{forward(0), forward(1), backward(0), backward(1), weight_gradient(1)};
      }),
      HasSubstr("has weight gradient 1 where 0 is next of 2"));
  EXPECT_EQ(
      refusal([](const PipelineShape&, StageIndex) {
        return ActionList{forward(0), forward(1), backward(0), backward(1), weight_gradient(0)};
      }),
      "the schedule \"mine\": stage 0 ends after 2 forwards and 2 backwards and 1 weight "
      "gradients of 2");
}

TEST(CheckLists, CountsMicroBatchesUntilTheirWeightGradients) {
  const auto late = [](const PipelineShape&, StageIndex) {
    return ActionList{forward(0),         backward(0),        forward(1),
                      backward(1),        forward(2),         backward(2),
                      weight_gradient(0), weight_gradient(1), weight_gradient(2)};
  };
  EXPECT_THROW(check_lists({"mine", "", late, two}, {.stages = 1, .micro_batches = 3}),
               std::invalid_argument);
}

TEST(CheckLists, RefusesSeveralChunksIfUnsupported) {
  PipelineShape shape{.stages = 3, .micro_batches = 7, .depth = 1, .chunks = 2};
  EXPECT_NO_THROW(check_lists(schedule_named("interleaved"), shape));
  try {
    check_lists(schedule_named("1f1b"), shape);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(
        error.what(),
        "the schedule \"1f1b\" runs one chunk a stage, not 2; \"interleaved\" runs several");
  }
  const auto one_of_two = [](const PipelineShape&, StageIndex) {
    return ActionList{forward(0), backward(0)};
  };
  try {
    check_lists({"mine", "", one_of_two, two, 2}, {.stages = 1, .chunks = 2});
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "the schedule \"mine\": stage 0 ends after 0 forwards and 0 "
                 "backwards of 1 through chunk 1");
  }
}

TEST(CheckLists, RefusesTooSmallPromise) {
  const auto all = [](const PipelineShape&, StageIndex) {
    return ActionList{forward(0), forward(1), forward(2), backward(0), backward(1), backward(2)};
  };
  EXPECT_THROW(check_lists({"mine", "", all, two}, {.stages = 1, .micro_batches = 3}),
               std::invalid_argument);
}

TEST(CheckLists, RefusesDeadlock) {
  // Stage 0 wants a gradient before it makes what stage 1 needs for its first.
  EXPECT_THAT(refusal([](const PipelineShape&, StageIndex stage) {
                return stage == StageIndex{0}
                           ? ActionList{forward(0), backward(0), forward(1), backward(1)}
                           : ActionList{forward(0), forward(1), backward(0), backward(1)};
              }),
              HasSubstr("deadlocks: stage 0 stops before backward 0"));
}

}  // namespace
}  // namespace strait::schedules::check_lists_test
