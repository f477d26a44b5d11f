#include "schedules/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/action_lists.h"
#include "tests/refusal_of.h"

namespace strait::schedules::schedule_test {
namespace {

std::string text_of(const ActionList& list) {
  std::string text;
  for (const Action& action : list) {
    if (!text.empty()) text += ' ';
    text += action.work == Work::forward ? 'F' : action.work == Work::backward ? 'B' : 'W';
    text += std::to_string(number(action.micro_batch)) +
            std::string(static_cast<std::size_t>(number(action.chunk)), '\'');
  }
  return text;
}

TEST(Schedule, GPipeDoesAllForwardsThenAllBackwardsInIndexOrder) {
  EXPECT_EQ(text_of(gpipe({.stages = 2, .micro_batches = 3}, StageIndex{0})), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(text_of(gpipe({.stages = 2, .micro_batches = 3}, StageIndex{1})), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, OneForwardOneBackwardFillsThenAlternates) {
  const PipelineShape shape{.stages = 3, .micro_batches = 4};
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{0})), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{1})), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{2})), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, DepthAddsOneForwardPerHopBelow) {
  const PipelineShape shape{.stages = 2, .micro_batches = 4, .depth = 1};
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{0})), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{1})), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, FewerMicroBatchesThanStagesBecomeGPipeWhereTheFillTakesThemAll) {
  const PipelineShape shape{.stages = 8, .micro_batches = 2};
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{0})), "F0 F1 B0 B1");
  EXPECT_EQ(text_of(one_forward_one_backward(shape, StageIndex{7})), "F0 B0 F1 B1");
}

TEST(Schedule, AHugeDepthIsCutToTheMicroBatchesThereAre) {
  const PipelineShape shape{.stages = 64, .micro_batches = 5, .depth = 2'000'000'000};
  EXPECT_EQ(one_forward_one_backward_in_flight(shape, StageIndex{0}), 5);
  EXPECT_EQ(one_forward_one_backward_in_flight(shape, StageIndex{63}), 1);
}

TEST(Schedule, ZeroBubbleLeavesWeightGradientsForLaterTheLowerTheStage) {
  PipelineShape shape{.stages = 3, .micro_batches = 4};
  EXPECT_EQ(text_of(zero_bubble(shape, StageIndex{0})), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  EXPECT_EQ(text_of(zero_bubble(shape, StageIndex{1})), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
  EXPECT_EQ(text_of(zero_bubble(shape, StageIndex{2})), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
  shape.depth = 1;
  EXPECT_EQ(text_of(zero_bubble(shape, StageIndex{1})), "F0 F1 F2 B0 F3 B1 B2 W0 B3 W1 W2 W3");
  shape.depth = 2'000'000'000;
  EXPECT_EQ(text_of(zero_bubble(shape, StageIndex{2})), "F0 B0 F1 B1 F2 B2 F3 B3 W0 W1 W2 W3");
  EXPECT_EQ(zero_bubble_in_flight(shape, StageIndex{2}), 4);
}

TEST(Schedule, InterleavedTakesGroupsThroughItsChunks) {
  const PipelineShape shape{.stages = 2, .micro_batches = 4, .chunks = 2};
  EXPECT_EQ(text_of(interleaved(shape, StageIndex{0})),
            "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3");
  EXPECT_EQ(text_of(interleaved(shape, StageIndex{1})),
            "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3");
  EXPECT_EQ(text_of(forward_only(shape, StageIndex{1})), "F0 F1 F0' F1' F2 F3 F2' F3'");
}

TEST(Schedule, InterleavedSpreadsARemainderAndHasOneGroupOfFewMicroBatches) {
  const auto forwards = [](int micro_batches, int depth) {
    const PipelineShape shape{2, micro_batches, depth, 2};
    std::string text;
    for (const Action& action : interleaved(shape, StageIndex{0})) {
      if (action.work == Work::forward) text += text_of({action}) + " ";
    }
    return text;
  };
  EXPECT_EQ(forwards(5, 0), "F0 F1 F0' F1' F2 F3 F4 F2' F3' F4' ");
  EXPECT_EQ(forwards(1, 0), "F0 F0' ");
  EXPECT_EQ(forwards(6, 1), "F0 F1 F2 F0' F1' F2' F3 F4 F5 F3' F4' F5' ");
}

TEST(Schedule, InterleavedWithOneChunkIs1F1B) {
  const PipelineShape shape{.stages = 3, .micro_batches = 5, .depth = 1};
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(interleaved(shape, StageIndex{s}), one_forward_one_backward(shape, StageIndex{s}));
    EXPECT_EQ(interleaved_in_flight(shape, StageIndex{s}),
              one_forward_one_backward_in_flight(shape, StageIndex{s}));
  }
}

TEST(Schedule, SlicesGoForwardInOrderAndBackwardInTheOppositeOne) {
  PipelineShape shape{.stages = 2, .micro_batches = 2, .slices = 3};
  EXPECT_EQ(text_of(action_list(schedule_named("1f1b"), shape, StageIndex{1})),
            "F0 F1 F2 B2 B1 B0 F3 F4 F5 B5 B4 B3");
  shape.slices = 2;
  EXPECT_EQ(text_of(action_list(schedule_named("zero_bubble"), shape, StageIndex{1})),
            "F0 F1 B1 B0 F2 F3 B3 B2 W1 W0 W3 W2");
  for (const Schedule& schedule : catalogue().all()) {
    for (const int slices : {2, 4}) {
      EXPECT_NO_THROW(check_lists(schedule, {5, 7, 1, schedule.chunks, slices})) << schedule.name;
    }
  }
}

TEST(Schedule, EvaluationOnlyRunsForwards) {
  EXPECT_EQ(text_of(forward_only({.stages = 4, .micro_batches = 3}, StageIndex{2})), "F0 F1 F2");
}

TEST(Schedule, IsFoundByTheNameThatRecipesUse) {
  const PipelineShape shape{.stages = 3, .micro_batches = 4, .depth = 1};
  EXPECT_EQ(schedule_named("gpipe").list(shape, StageIndex{1}), gpipe(shape, StageIndex{1}));
  EXPECT_EQ(schedule_named("1f1b").list(shape, StageIndex{1}),
            one_forward_one_backward(shape, StageIndex{1}));
  for (const Schedule& schedule : catalogue().all()) {
    EXPECT_EQ(&schedule_named(schedule.name), &schedule);
  }
}

TEST(Schedule, AnUnknownNameIsRefusedWithTheAllowedOnes) {
  EXPECT_EQ(refusal_of<std::invalid_argument>([] { schedule_named("pipedream"); }),
            "unknown schedule \"pipedream\"; allowed are: gpipe, 1f1b, zero_bubble, interleaved");
}

TEST(Schedule, AShapeNoPipelineCanHaveIsRefusedWithItsNumbers) {
  using testing::HasSubstr;
  for (const Schedule& schedule : catalogue().all()) {
    const auto refusal = [&](PipelineShape shape, int stage) {
      return refusal_of<std::invalid_argument>([&] { schedule.list(shape, StageIndex{stage}); });
    };
    EXPECT_THAT(refusal({.stages = 0}, 0), HasSubstr("stage 0 of 0 stages"));
    EXPECT_THAT(refusal({.micro_batches = 0}, 0), HasSubstr("0 micro-batches"));
    EXPECT_THAT(refusal({.depth = -1}, 0), HasSubstr("depth -1"));
    EXPECT_THAT(refusal({.slices = 0}, 0), HasSubstr("0 slices"));
    EXPECT_THAT(refusal({.stages = 2}, 2), HasSubstr("stage 2 of 2 stages"));
    EXPECT_THAT(refusal({.stages = 2}, -1), HasSubstr("stage -1 of 2 stages"));
  }
}

TEST(Schedule, ActionsDescribeThemselves) {
  EXPECT_EQ(describe(Action{Work::forward, ChunkIndex{0}, MicroBatch{3}}), "forward 3");
  EXPECT_EQ(describe(Action{Work::weight_gradient, ChunkIndex{2}, MicroBatch{0}}),
            "weight gradient 0 of chunk 2");
}

}  // namespace
}  // namespace strait::schedules::schedule_test
