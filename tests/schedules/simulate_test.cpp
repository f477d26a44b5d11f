#include "schedules/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <random>

#include "schedules/action_lists.h"
#include "schedules/pipeline_shape.h"
#include "schedules/schedule.h"
#include "tests/refusal_of.h"

namespace strait::schedules::simulate_test {
namespace {

Action forward(int m) { return {Work::forward, ChunkIndex{0}, MicroBatch{m}}; }
Action backward(int m) { return {Work::backward, ChunkIndex{0}, MicroBatch{m}}; }
Action weight_gradient(int m) { return {Work::weight_gradient, ChunkIndex{0}, MicroBatch{m}}; }

std::vector<ChunkCost> same_cost(int stages, const ChunkCost& cost) {
  return std::vector<ChunkCost>(static_cast<std::size_t>(stages), cost);
}

std::vector<LinkCost> same_link(int stages, const LinkCost& link = {}) {
  return std::vector<LinkCost>(static_cast<std::size_t>(stages - 1), link);
}

// All stages and their links on one machine.
Machines one_machine(std::size_t stages, double cores, double threads = 1) {
  return {{cores}, std::vector<StagePlace>(stages, {0, threads, 0})};
}

std::vector<ActionList> forwards(int stages, int micro_batches) {
  return std::vector<ActionList>(static_cast<std::size_t>(stages),
                                 forward_only({stages, micro_batches, 0}, {}));
}

std::string refusal(const std::vector<ActionList>& lists, const std::vector<ChunkCost>& costs,
                    const std::vector<LinkCost>& links) {
  return refusal_of<std::invalid_argument>([&] { simulate(lists, costs, links); });
}

TEST(Simulate, WithoutNetworkDelayEveryScheduleTakesTheTextbookTime) {
  const ChunkCost cost{.forward_seconds = 1, .backward_seconds = 2};
  for (const Schedule& schedule : catalogue().all()) {
    for (const int stages : {1, 2, 5, 8}) {
      for (const int m : {1, 3, 8, 32}) {
        const auto lists = action_lists(schedule, {stages, m, 0});
        const Forecast forecast = simulate(lists, same_cost(stages, cost), same_link(stages));
        EXPECT_EQ(forecast.seconds, 3.0 * (m + stages - 1))
            << schedule.name << ", " << stages << " stages, " << m << " micro-batches";
        for (const StageForecast& stage : forecast.stages) {
          EXPECT_EQ(stage.busy_seconds, 3.0 * m);
          EXPECT_EQ(stage.idle_seconds, 3.0 * (stages - 1));
        }
      }
    }
  }
}

// One micro-batch over two stages, added up by hand: forward 1, 10 bytes at 5 per second, latency
// 0.25, forward 1, backward 2, 6 bytes at 2 per second, latency, backward 2.
TEST(Simulate, AMessageOccupiesItsLinkThenArrivesAfterTheLatency) {
  const LinkCost link{.forward_bytes = 10,
                      .backward_bytes = 6,
                      .forward_bytes_per_second = 5,
                      .backward_bytes_per_second = 2,
                      .latency_seconds = 0.25};
  const std::vector<ActionList> lists(2, ActionList{forward(0), backward(0)});
  const Forecast forecast =
      simulate(lists, same_cost(2, {.forward_seconds = 1, .backward_seconds = 2}), {{link}});
  EXPECT_EQ(forecast.seconds, 1 + 2 + 0.25 + 1 + 2 + 3 + 0.25 + 2);
  ASSERT_EQ(forecast.transfers.size(), 2U);
  EXPECT_EQ(forecast.transfers[0].start, 1);
  EXPECT_EQ(forecast.transfers[0].end, 3);
  EXPECT_EQ(forecast.transfers[1].from, StageIndex{1});
  EXPECT_EQ(forecast.transfers[1].to, StageIndex{0});
  EXPECT_EQ(forecast.transfers[1].end - forecast.transfers[1].start, 3);
}

// The middle one of three stages sends activations down and gradients up on one line: by hand, its
// 20 messages of a second each are what a step waits for.
TEST(Simulate, WhatAStageSendsSharesItsLine) {
  const int m = 10;
  const auto lists = action_lists(schedule_named("1f1b"), {3, m, 4});
  const auto costs = same_cost(3, {.forward_seconds = 0.01, .backward_seconds = 0.01});
  LinkCost link{.forward_bytes = 1,
                .backward_bytes = 1,
                .forward_bytes_per_second = 1,
                .backward_bytes_per_second = 1};
  const double apart = simulate(lists, costs, same_link(3, link)).seconds;
  EXPECT_LT(apart, 2 * m - 2);
  link.forward_uplink_bytes_per_second = link.backward_uplink_bytes_per_second = 1;
  const double shared = simulate(lists, costs, same_link(3, link)).seconds;
  EXPECT_GE(shared, 2 * m);
  EXPECT_LT(shared, 2 * m + 5);
  link.forward_uplink_bytes_per_second = link.backward_uplink_bytes_per_second = 1e9;
  EXPECT_NEAR(simulate(lists, costs, same_link(3, link)).seconds, apart, 1e-6);
}

// By hand: forward 1 of stage 0 and forward 0 of stage 1 have half a core each from 1 to 3; the
// others have it alone.
TEST(Simulate, StagesShareTheCoresOfTheirMachineWhileSeveralAreBusy) {
  const auto costs = same_cost(2, {.forward_seconds = 1});
  const Forecast shared = simulate(forwards(2, 2), costs, same_link(2), one_machine(2, 1));
  EXPECT_EQ(shared.seconds, 4);
  EXPECT_EQ(shared.stages[0].busy_seconds, 1 + 2);
  EXPECT_EQ(shared.stages[1].busy_seconds, 2 + 1);
  EXPECT_EQ(shared.stages[1].idle_seconds, 1);
  EXPECT_EQ(simulate(forwards(2, 2), costs, same_link(2), one_machine(2, 2)).seconds, 3);
  // Four threads on three cores, each with three quarters of a second in a second.
  EXPECT_DOUBLE_EQ(simulate(forwards(2, 2), costs, same_link(2), one_machine(2, 3, 2)).seconds,
                   1 + 4.0 / 3 + 1);
}

// By hand: 4 and 7 seconds of work on one core, in equal parts until the shorter one ends at 8.
TEST(Simulate, UpdatesShareCoresToo) {
  const Forecast forecast =
      simulate(forwards(2, 1), std::vector<ChunkCost>{{.update_seconds = 4}, {.update_seconds = 7}},
               same_link(2), one_machine(2, 1));
  EXPECT_EQ(forecast.seconds, 11);
  EXPECT_EQ(forecast.stages[0].busy_seconds, 8);
  EXPECT_EQ(forecast.stages[1].busy_seconds, 11);
}

TEST(Simulate, ThreadsOfLinksCodeBeforeAndAfterAMessageCrosses) {
  const auto costs = same_cost(2, {.forward_seconds = 1});
  LinkCost link{.forward_bytes = 2, .forward_bytes_per_second = 1};
  link.forward_coding_seconds = 0.5;
  EXPECT_EQ(simulate(forwards(2, 1), costs, {{link}}).seconds, 1 + 0.5 + 2 + 0.5 + 1);
  // One core for each stage and its end of the link. Sent at 2 and at 3, decoded at 2.5 and 4: the
  // first encoding has half a core during forward 1, which ends at 2.5, as the second decoding has
  // during forward 0 of stage 1.
  link.forward_bytes_per_second = std::numeric_limits<double>::infinity();
  const Machines machines{{1, 1}, {{0, 1, 0}, {1, 1, 1}}};
  const Forecast forecast = simulate(forwards(2, 2), costs, {{link}}, machines);
  EXPECT_EQ(forecast.stages[0].busy_seconds, 1 + 1.5);
  EXPECT_EQ(forecast.stages[1].busy_seconds, 1.5 + 1);
  EXPECT_EQ(forecast.seconds, 2.5 + 1.5 + 1);
}

// By hand: from 1 on, forward 0 of stage 1 has a third of the core, because both ends of the link
// have as much for a second of work each.
TEST(Simulate, TransportTakesCoresButNothingWaitsForIt) {
  LinkCost link{.forward_bytes = 1};
  link.transport_seconds_per_byte = 1;
  const auto costs = same_cost(2, {.forward_seconds = 1});
  EXPECT_EQ(simulate(forwards(2, 1), costs, {{link}}).seconds, 2);
  EXPECT_EQ(simulate(forwards(2, 1), costs, {{link}}, one_machine(2, 1)).seconds, 1 + 3);
}

// On random pipelines: cores are never slower than their share by threads, never do more than
// there are of them, and make no difference where all threads have one.
TEST(Simulate, SharedCoresStayWithinTheirBounds) {
  const std::uint32_t seed = 20261130;
  std::mt19937 random(seed);
  const auto draw = [&](double most) {
    return std::uniform_real_distribution<double>(0.1, most)(random);
  };
  for (int round = 0; round < 100; ++round) {
    const int stages = 2 + round % 5;
    const int m = 1 + round % 9;
    std::vector<ChunkCost> costs;
    double work = 0;
    for (int s = 0; s < stages; ++s) {
      costs.push_back({.forward_seconds = draw(2), .backward_seconds = draw(3)});
      work += m * (costs.back().forward_seconds + costs.back().backward_seconds);
    }
    const auto links = same_link(stages, {draw(2), draw(2), 1, 1, draw(1)});
    const auto lists = action_lists(schedule_named("1f1b"), {stages, m, round % 3});
    const auto count = static_cast<std::size_t>(stages);
    const double alone = simulate(lists, costs, links).seconds;
    EXPECT_NEAR(simulate(lists, costs, links, one_machine(count, stages)).seconds, alone, 1e-9);
    const double cores = stages / 2.0;
    const double shared = simulate(lists, costs, links, one_machine(count, cores)).seconds;
    EXPECT_GE(shared, alone - 1e-9) << "seed " << seed << ", round " << round;
    EXPECT_GE(shared, work / cores - 1e-9) << "seed " << seed << ", round " << round;
    EXPECT_LE(shared, 2 * alone + 1e-9) << "seed " << seed << ", round " << round;
  }
}

TEST(Simulate, LatencyIsPaidOncePerFillNotOncePerMessage) {
  const std::vector<ActionList> lists = action_lists(schedule_named("gpipe"), {2, 10, 0});
  const auto costs = same_cost(2, {.forward_seconds = 1, .backward_seconds = 1});
  const double near = simulate(lists, costs, same_link(2)).seconds;
  const double far = simulate(lists, costs, same_link(2, {.latency_seconds = 5})).seconds;
  EXPECT_EQ(far, near + 2 * 5);
}

TEST(Simulate, SlowestStageLimitsThroughput) {
  const int m = 20;
  const std::vector<ChunkCost> costs = {{.forward_seconds = 1, .backward_seconds = 1},
                                        {.forward_seconds = 3, .backward_seconds = 3}};
  const Forecast forecast =
      simulate(action_lists(schedule_named("1f1b"), {2, m, 0}), costs, {{{}}});
  EXPECT_EQ(forecast.seconds, 1 + 6.0 * m + 1);
  EXPECT_EQ(forecast.stages[1].idle_seconds, 2);
  EXPECT_EQ(forecast.stages[0].idle_seconds, forecast.seconds - 2.0 * m);
}

TEST(Simulate, TheUpdateFollowsTheLastGradientOfAll) {
  const std::vector<ChunkCost> costs = {
      {.forward_seconds = 1, .backward_seconds = 1, .update_seconds = 4},
      {.forward_seconds = 1, .backward_seconds = 1, .update_seconds = 7}};
  const Forecast forecast =
      simulate(action_lists(schedule_named("1f1b"), {2, 1, 0}), costs, {{{}}});
  EXPECT_EQ(forecast.seconds, 4 + 7);
  EXPECT_EQ(forecast.stages[0].busy_seconds, 6);
  EXPECT_EQ(forecast.stages[1].busy_seconds, 9);
}

TEST(Simulate, MemoryIsHeldFromTheForwardToTheEndOfTheWholeBackward) {
  const ChunkCost cost{.forward_seconds = 1,
                       .backward_seconds = 1,
                       .bytes_in_flight = 100,
                       .weight_gradient_bytes = 100};
  for (const Schedule& schedule : catalogue().all()) {
    for (const PipelineShape shape : {PipelineShape{4, 9, 0}, {4, 9, 1}, {4, 9, 2}, {6, 3, 1}}) {
      const Forecast forecast = simulate(action_lists(schedule, shape),
                                         same_cost(shape.stages, cost), same_link(shape.stages));
      for (int s = 0; s < shape.stages; ++s) {
        const StageForecast& stage = forecast.stages[static_cast<std::size_t>(s)];
        EXPECT_EQ(stage.peak_in_flight, schedule.most_in_flight(shape, StageIndex{s}));
        EXPECT_EQ(stage.peak_bytes, 100.0 * stage.peak_in_flight);
      }
    }
  }
}

TEST(Simulate, AnEvaluationHoldsNothingBeyondTheMicroBatchAtWork) {
  const std::vector<ActionList> lists(3, forward_only({.stages = 3, .micro_batches = 5}, {}));
  const Forecast forecast = simulate(lists, same_cost(3, {.forward_seconds = 1}), same_link(3));
  EXPECT_TRUE(forecast.completes());
  EXPECT_EQ(forecast.seconds, 7);
  EXPECT_EQ(forecast.stages[0].peak_in_flight, 1);
}

TEST(Simulate, ASplitBackwardSendsItsGradientBeforeTheWeightGradientIsDone) {
  const ActionList whole = {forward(0), backward(0), weight_gradient(0)};
  const Forecast forecast = simulate(
      std::vector<ActionList>(2, whole),
      same_cost(2, {.forward_seconds = 1, .backward_seconds = 6, .weight_gradient_seconds = 5}),
      same_link(2));
  EXPECT_EQ(forecast.seconds, 1 + 1 + 1 + 1 + 5);
  EXPECT_EQ(forecast.stages[0].busy_seconds, 1 + 6);
  EXPECT_EQ(forecast.stages[0].peak_in_flight, 1);
}

// (p - 1)(F + B - W), where 1F1B has (p - 1)(F + B + W): table 1 of "Zero Bubble Pipeline
// Parallelism", ZB-H1. With whole backwards B + W it is (p - 1)(F + B - 2W).
TEST(Simulate, ZeroBubbleHasThePublishedBubbleAtEqualCosts) {
  struct Seconds {
    double forward, backward, weights;
  };
  for (const Seconds& of : {Seconds{1, 1, 1}, {2, 2, 1}, {3, 4, 2}, {1, 2, 1}, {3, 2, 1}}) {
    const ChunkCost cost{.forward_seconds = of.forward,
                         .backward_seconds = of.backward + of.weights,
                         .weight_gradient_seconds = of.weights};
    for (const int stages : {2, 4, 8}) {
      for (const int m : {stages, stages + 1, 4 * stages}) {
        const auto bubble = [&](const char* schedule) {
          const auto lists = action_lists(schedule_named(schedule), {stages, m, 0});
          const Forecast forecast = simulate(lists, same_cost(stages, cost), same_link(stages));
          EXPECT_TRUE(forecast.completes());
          return forecast.stages[0].idle_seconds;
        };
        EXPECT_EQ(bubble("1f1b"), (stages - 1) * (of.forward + of.backward + of.weights));
        EXPECT_EQ(bubble("zero_bubble"), (stages - 1) * (of.forward + of.backward - of.weights))
            << stages << " stages, " << m << " micro-batches";
      }
    }
  }
}

// Links that take as long as a forward, or three times that: the bubble is smaller at every depth.
TEST(Simulate, ZeroBubbleIsFasterThan1F1BOnSlowLinks) {
  const ChunkCost cost{.forward_seconds = 1, .backward_seconds = 2, .weight_gradient_seconds = 1};
  for (const double seconds : {1.0, 3.0}) {
    const LinkCost link{seconds, seconds, 1, 1, 0};
    for (const int m : {4, 8, 16}) {
      for (int depth = 0; depth < 3; ++depth) {
        const auto step = [&](const char* schedule) {
          const auto lists = action_lists(schedule_named(schedule), {4, m, depth});
          return simulate(lists, same_cost(4, cost), same_link(4, link)).seconds;
        };
        EXPECT_LT(step("zero_bubble"), step("1f1b"))
            << m << " micro-batches, depth " << depth << ", " << seconds << " s a message";
      }
    }
  }
}

// What a pass keeps for its weight gradients is held in addition to the activations of others: on
// the highest stage as in 1F1B, on the others up to that.
TEST(Simulate, ZeroBubbleHoldsNoMoreThanTheFirstStageOf1F1B) {
  ChunkCost cost{.forward_seconds = 1, .backward_seconds = 2, .weight_gradient_seconds = 1};
  cost.bytes_in_flight = 100;
  for (const double kept : {60.0, 100.0}) {
    cost.weight_gradient_bytes = kept;
    const auto lists = action_lists(schedule_named("zero_bubble"), {4, 9, 0});
    const Forecast forecast = simulate(lists, same_cost(4, cost), same_link(4));
    const std::vector<PassBytes> bytes = {{100, static_cast<std::int64_t>(kept)}};
    for (std::size_t s = 0; s < 4; ++s) {
      const double fill = 4.0 - static_cast<double>(s);
      const double late = static_cast<double>(s);
      EXPECT_EQ(forecast.stages[s].peak_bytes, fill * 100 + late * kept);
      EXPECT_EQ(forecast.stages[s].peak_bytes, most_held(lists[s], bytes));
      EXPECT_LE(forecast.stages[s].peak_bytes, 400);
    }
  }
}

// Against the rules themselves, on random pipelines: nothing starts before what it needs, stages
// and links do one thing at a time, and every wait has a cause.
TEST(Simulate, NothingHappensTooEarlyOrForNoReason) {
  const std::uint32_t seed = 20240517;
  std::mt19937 random(seed);
  const auto draw = [&](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int round = 0; round < 200; ++round) {
    const auto which = static_cast<std::size_t>(round) % catalogue().all().size();
    const Schedule& schedule = catalogue().all()[which];
    const PipelineShape shape{pick(7), pick(20), pick(4) - 1, schedule.chunks == 1 ? 1 : pick(4)};
    const int positions = shape.stages * shape.chunks;
    std::vector<ChunkCost> costs;
    std::vector<LinkCost> links;
    for (int p = 0; p < positions; ++p) {
      costs.push_back({.forward_seconds = draw(2), .backward_seconds = draw(3)});
      costs.back().weight_gradient_seconds = draw(costs.back().backward_seconds);
      if (p > 0) {
        links.push_back({draw(4), draw(4), 0.5 + draw(3), 0.5 + draw(3), draw(1)});
      }
    }
    const Forecast forecast = simulate(action_lists(schedule, shape), costs, links);
    ASSERT_TRUE(forecast.completes()) << describe(forecast.blocked);

    const auto position = [&](StageIndex stage, const Action& action) {
      return position_of(stage, action.chunk, shape.stages);
    };
    std::map<std::tuple<int, Work, int>, ActionSpan> done;  // by position, work and micro-batch
    std::map<std::tuple<int, int, int>, double> arrived;    // from, to, micro-batch
    std::map<std::pair<int, int>, double> path_free;        // of two stages
    for (const ActionSpan& span : forecast.spans) {
      done[{position(span.stage, span.action), span.action.work, number(span.action.micro_batch)}] =
          span;
    }
    for (const TransferSpan& transfer : forecast.transfers) {
      const int from = position_of(transfer.from, transfer.chunk, shape.stages);
      const int m = number(transfer.micro_batch);
      // Down or up: what was made just before it left, or before the path was free.
      const bool down = stage_at(from + 1, shape.stages) == transfer.to && from + 1 < positions &&
                        !arrived.contains({from, from + 1, m});
      const int to = down ? from + 1 : from - 1;
      const double made = done.at({from, down ? Work::forward : Work::backward, m}).end;
      double& free = path_free[{number(transfer.from), number(transfer.to)}];
      EXPECT_EQ(transfer.start, std::max(made, free)) << "seed " << seed << ", round " << round;
      free = transfer.end;
      const LinkCost& link = links[static_cast<std::size_t>(std::min(from, to))];
      arrived[{from, to, m}] = transfer.end + link.latency_seconds;
    }
    for (int s = 0; s < shape.stages; ++s) {
      double free = 0;
      for (const Action& action : schedule.list(shape, StageIndex{s})) {
        const int m = number(action.micro_batch);
        const int p = position(StageIndex{s}, action);
        double ready = free;
        if (action.work == Work::forward && p > 0) {
          ready = std::max(ready, arrived.at({p - 1, p, m}));
        }
        if (action.work == Work::backward && p + 1 < positions) {
          ready = std::max(ready, arrived.at({p + 1, p, m}));
        }
        const ActionSpan& span = done.at({p, action.work, m});
        EXPECT_EQ(span.start, ready) << "seed " << seed << ", round " << round;
        free = span.end;
      }
      EXPECT_LE(free, forecast.seconds);
    }
  }
}

TEST(Simulate, ChunksShrinkTheBubbleByTheirNumber) {
  constexpr int kStages = 4;
  constexpr int kMicroBatches = 8;
  for (const int chunks : {1, 2, 4}) {
    const ChunkCost cost{.forward_seconds = 1.0 / chunks, .backward_seconds = 2.0 / chunks};
    const PipelineShape shape{kStages, kMicroBatches, 0, chunks};
    const auto lists = action_lists(schedule_named("interleaved"), shape);
    const Forecast forecast =
        simulate(lists, same_cost(kStages * chunks, cost), same_link(kStages * chunks));
    EXPECT_EQ(forecast.seconds, 3.0 * kMicroBatches + 3.0 * (kStages - 1) / chunks);
    for (int s = 0; s < kStages; ++s) {
      EXPECT_EQ(forecast.stages[static_cast<std::size_t>(s)].peak_in_flight,
                schedule_named("interleaved").most_in_flight(shape, StageIndex{s}));
    }
  }
}

// Two stages, two chunks: what goes from stage 0 to stage 1 is the first chunk's activations, the
// second one's, and the gradients of the way around; they take turns on one path.
TEST(Simulate, BoundariesBetweenTheSameStagesShareTheirPath) {
  const std::vector<ActionList> lists = action_lists(schedule_named("interleaved"), {2, 2, 0, 2});
  const LinkCost link{.forward_bytes = 1,
                      .backward_bytes = 1,
                      .forward_bytes_per_second = 1,
                      .backward_bytes_per_second = 1};
  const Forecast forecast =
      simulate(lists, std::vector<ChunkCost>(4), std::vector<LinkCost>(3, link));
  ASSERT_TRUE(forecast.completes());
  double free = 0;
  int seen = 0;
  for (const TransferSpan& transfer : forecast.transfers) {
    if (transfer.from != StageIndex{0}) continue;
    EXPECT_GE(transfer.start, free);
    free = transfer.end;
    ++seen;
  }
  EXPECT_EQ(seen, 6);
}

TEST(Simulate, MemoryIsThatOfTheChunksThatAreHeld) {
  const std::vector<ActionList> lists = action_lists(schedule_named("interleaved"), {2, 3, 0, 2});
  std::vector<ChunkCost> costs(4);
  const std::vector<std::int64_t> bytes = {5, 7, 11, 13};  // by position
  for (std::size_t p = 0; p < 4; ++p) costs[p].bytes_in_flight = static_cast<double>(bytes[p]);
  const Forecast forecast = simulate(lists, costs, std::vector<LinkCost>(3));
  for (std::size_t s = 0; s < 2; ++s) {
    const std::vector<PassBytes> mine = {{bytes[s], 0}, {bytes[s + 2], 0}};
    EXPECT_EQ(forecast.stages[s].peak_bytes, most_held(lists[s], mine));
  }
  EXPECT_EQ(forecast.stages[1].peak_bytes, 3 * 7 + 13)
      << "all of the first chunk, and one of the second before its backward";
}

TEST(MostHeld, CountsOnlyTheWaitingPassesThatAreHere) {
  const PipelineShape shape{4, 16, 0, 1};
  const ActionList gpipe = schedule_named("gpipe").list(shape, StageIndex{0});
  const ActionList split = schedule_named("zero_bubble").list(shape, StageIndex{0});
  const std::vector<PassBytes> bytes{{10, 3}};
  EXPECT_EQ(most_held(gpipe, bytes), 160);
  EXPECT_EQ(most_held(gpipe, bytes, 3), 30);
  EXPECT_EQ(most_held(gpipe, bytes, 16), 160);
  EXPECT_LT(most_held(split, bytes, 2), most_held(split, bytes));
  EXPECT_GT(most_held(split, bytes, 2), 20);  // weight gradients wait here
}

TEST(Simulate, DeadlockNamesEveryBlockedStage) {
  // Stage 0 wants its first gradient before it sends the second forward; stage 1 wants both first.
  const std::vector<ActionList> lists = {{forward(0), backward(0), forward(1), backward(1)},
                                         {forward(0), forward(1), backward(0), backward(1)}};
  const Forecast forecast = simulate(lists, same_cost(2, {}), same_link(2));
  ASSERT_EQ(forecast.blocked.size(), 2U);
  EXPECT_EQ(forecast.blocked[0].action, backward(0));
  EXPECT_EQ(forecast.blocked[1].action, forward(1));
  EXPECT_EQ(describe(forecast.blocked),
            "stage 0 stops before backward 0: it needs backward 0 of stage 1, which stops before "
            "forward 1; stage 1 stops before forward 1: it needs forward 1 of stage 0, which stops "
            "before backward 0");
}

TEST(Simulate, AMissingActionAndABackwardBeforeItsForwardAreNamed) {
  const auto blocked = [](const std::vector<ActionList>& lists) {
    return describe(simulate(lists, same_cost(2, {}), same_link(2)).blocked);
  };
  EXPECT_EQ(blocked({{forward(0)}, {forward(0), forward(1)}}),
            "stage 1 stops before forward 1: it needs forward 1 of stage 0, which never does it");
  EXPECT_EQ(blocked({{forward(0), backward(0)}, {backward(0), forward(0)}}),
            "stage 0 stops before backward 0: it needs backward 0 of stage 1, which stops before "
            "backward 0; stage 1 stops before backward 0: it needs forward 0 of stage 1, which "
            "stands later in the same list");
  EXPECT_EQ(blocked({{forward(0)}, {forward(0), weight_gradient(0)}}),
            "stage 1 stops before weight gradient 0: it needs backward 0 of stage 1, which never "
            "does it");
}

TEST(Simulate, RefusesInputThatCannotBeSimulated) {
  using testing::HasSubstr;
  const ActionList list = {forward(0), backward(0)};
  const std::vector<ActionList> two(2, list);
  EXPECT_THAT(refusal({}, {}, {}), HasSubstr("0 lists, 0 stage costs and 0 links"));
  EXPECT_THAT(refusal(two, same_cost(1, {}), same_link(2)), HasSubstr("2 lists, 1 stage costs"));
  EXPECT_THAT(refusal(two, same_cost(2, {}), {}), HasSubstr("0 links"));
  EXPECT_THAT(refusal({{forward(0), forward(0)}}, same_cost(1, {}), {}),
              HasSubstr("stage 0 lists forward 0 twice"));
  EXPECT_THAT(refusal({{forward(-1)}}, same_cost(1, {}), {}), HasSubstr("forward -1"));
  EXPECT_THAT(refusal({{forward(2'000'000'000)}}, same_cost(1, {}), {}),
              HasSubstr("expected chunk 0 and a micro-batch from 0"));
  EXPECT_THAT(refusal(two, same_cost(2, {.forward_seconds = -1}), same_link(2)),
              HasSubstr("forward time of stage 0 is -1"));
  EXPECT_THAT(
      refusal(two, same_cost(2, {.backward_seconds = 1, .weight_gradient_seconds = 2}),
              same_link(2)),
      HasSubstr("weight gradient time of stage 0 is 2.000000, more than that of the whole"));
  EXPECT_THAT(refusal(two, same_cost(2, {}), same_link(2, {.forward_bytes_per_second = 0})),
              HasSubstr("bandwidth of the link after stage 0"));
  EXPECT_THAT(refusal(two, same_cost(2, {}), same_link(2, {.forward_coding_seconds = -1})),
              HasSubstr("coding time of the link after stage 0 is -1"));
  for (const Machines& machines : {one_machine(1, 1), one_machine(2, 0), one_machine(2, 1, 0),
                                   Machines{{1}, {{0, 1, 0}, {1, 1, 0}}}}) {
    EXPECT_THAT(refusal_of<std::invalid_argument>(
                    [&] { simulate(two, same_cost(2, {}), same_link(2), machines); }),
                HasSubstr("expected one for each stage, with threads and cores above 0"));
  }
}

// Of this thread alone: other programs on the machine do not count.
double processor_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A placement search asks thousands of times. Four times as many actions may take four times as
// long, and some more because they need more memory.
TEST(Simulate, ForecastTimeGrowsWithTheNumberOfActions) {
  const auto seconds_of = [](int stages, int micro_batches) {
    const auto lists = action_lists(schedule_named("1f1b"), {stages, micro_batches, 1});
    const auto costs = same_cost(stages, {.forward_seconds = 1, .backward_seconds = 2});
    const auto links = same_link(stages, {1, 1, 3, 3, 0.1});
    const double start = processor_seconds();
    EXPECT_TRUE(simulate(lists, costs, links).completes());
    return processor_seconds() - start;
  };
  double small = 1e9;
  double large = 1e9;
  for (int i = 0; i < 10; ++i) {
    small = std::min(small, seconds_of(32, 128));
    large = std::min(large, seconds_of(64, 256));
  }
  EXPECT_LT(large / small, 10);
}

}  // namespace
}  // namespace strait::schedules::simulate_test
