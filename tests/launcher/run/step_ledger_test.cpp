#include "launcher/run/step_ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace strait::run {
namespace {

const net::ProcessName kStepStage0{0, 0};
const net::ProcessName kStepStage1{1, 0};

StepDone of_first(std::int64_t step) {
  StepDone done;
  done.step = store::Step{step};
  done.learning_rate = 8.1e-4;
  done.seconds = 2;
  done.busy_seconds = 1.5;
  done.bytes_forward = 1000;
  done.boundaries.resize(1);
  done.boundaries[0].direction = "forward";
  return done;
}
StepDone of_second(std::int64_t step) {
  StepDone done;
  done.step = store::Step{step};
  done.loss = 0.1 + 0.2;
  done.grad_norm = 1.5;
  done.tokens = 4096;
  done.seconds = 1.9;
  done.busy_seconds = 1.9;
  done.bytes_backward = 900;
  done.boundaries.resize(1);
  done.boundaries[0].direction = "backward";
  done.sync = {{"1.0", 1, 77, 900, 0.5, 0.25}};
  return done;
}

TEST(StepLedger, LineNeedsReportOfEveryProcess) {
  StepLedger ledger({kStepStage0, kStepStage1});
  EXPECT_FALSE(ledger.add(kStepStage1, of_second(1)).has_value());
  const auto line = ledger.add(kStepStage0, of_first(1));
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->step, store::Step{1});
  EXPECT_EQ(line->loss, 0.1 + 0.2);
  EXPECT_EQ(line->learning_rate, 8.1e-4);
  EXPECT_EQ(line->tokens, 4096);
  EXPECT_DOUBLE_EQ(line->seconds, 1.95);
  EXPECT_DOUBLE_EQ(line->tokens_per_second, 4096 / 1.95);
  EXPECT_EQ(line->bytes_forward, 1000U);
  EXPECT_EQ(line->bytes_backward, 900U);
  ASSERT_EQ(line->boundaries.size(), 2U);
  EXPECT_EQ(line->boundaries[0].direction, "forward");
  EXPECT_EQ(line->boundaries[1].direction, "backward");
  EXPECT_EQ(to_json(*line).at("boundaries").size(), 2U);
  EXPECT_EQ(line->sync, of_second(1).sync);
  EXPECT_EQ(to_json(*line).at("sync").at(0).at("sent_bytes"), 77);
  const nlohmann::json idle = to_json(*line).at("idle");
  ASSERT_EQ(idle.size(), 2U);
  EXPECT_DOUBLE_EQ(idle.at("0.0").get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(idle.at("1.0").get<double>(), 0);
  EXPECT_DOUBLE_EQ(line->idle, 0.125);
}

TEST(StepLedger, ProcessMayBeStepsAhead) {
  StepLedger ledger({kStepStage0, kStepStage1});
  for (int step = 1; step <= 3; ++step) {
    EXPECT_FALSE(ledger.add(kStepStage0, of_first(step)).has_value());
  }
  for (int step = 1; step <= 3; ++step) {
    const auto line = ledger.add(kStepStage1, of_second(step));
    ASSERT_TRUE(line.has_value());
    EXPECT_EQ(line->step, store::Step{step});
  }
}

TEST(StepLedger, RefusesStepReportedTwiceOrBackwards) {
  StepLedger ledger({kStepStage0, kStepStage1});
  ledger.add(kStepStage0, of_first(5));
  EXPECT_THROW(ledger.add(kStepStage0, of_first(5)), base::MessageError);
  EXPECT_THROW(ledger.add(kStepStage0, of_first(4)), base::MessageError);
}

TEST(StepLedger, RejoinedProcessReportsFromJoinStep) {
  StepLedger ledger({kStepStage0, kStepStage1});
  ledger.leave(kStepStage1);
  EXPECT_TRUE(ledger.add(kStepStage0, of_first(5)).has_value());
  ledger.join(kStepStage1, store::Step{5});
  EXPECT_FALSE(ledger.add(kStepStage0, of_first(6)).has_value());
  EXPECT_THROW(ledger.add(kStepStage1, of_second(5)), base::MessageError);
  EXPECT_TRUE(ledger.add(kStepStage1, of_second(6)).has_value());
}

// Two processes. Each waits for the other in every second step.
TEST(StepLedger, StepSecondsSumToRunTime) {
  StepLedger ledger({kStepStage0, kStepStage1});
  double all = 0;
  for (std::int64_t step = 1; step <= 10; ++step) {
    StepDone first = of_first(step);
    StepDone second = of_second(step);
    first.seconds = step % 2 == 0 ? 0.03 : 0.23;
    second.seconds = step % 2 == 0 ? 0.23 : 0.03;
    EXPECT_FALSE(ledger.add(kStepStage0, first).has_value());
    const auto line = ledger.add(kStepStage1, second);
    ASSERT_TRUE(line.has_value());
    all += line->seconds;
  }
  EXPECT_NEAR(all, 1.3, 1e-9);
  EXPECT_NEAR(ledger.median_seconds(), 0.13, 1e-9);
}

// Replicas that train apart: the line is about the rows of all, weighted by their targets.
TEST(StepLedger, CombinesOwnRowsOfReplicas) {
  const std::vector<net::ProcessName> processes = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}};
  StepLedger ledger(processes);
  std::optional<StepLine> line;
  for (const net::ProcessName& name : processes) {
    StepDone done = of_second(1);
    done.own_rows = true;
    done.loss = name.replica == 0 ? 2.0 : 4.0;
    done.grad_norm = name.replica == 0 ? 3.0 : 5.0;
    done.targets = name.replica == 0 ? 300 : 100;
    done.accuracy = name.replica == 0 ? 0.5 : 1.0;
    if (name.replica == 2) {  // has rows without targets
      done.loss = std::nan("");
      done.grad_norm = 4;
      done.targets = 0;
    }
    done.skipped = name.replica == 2;
    line = ledger.add(name, done);
  }
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->loss, 2.5);
  EXPECT_DOUBLE_EQ(*line->grad_norm, std::sqrt((9.0 + 25.0 + 16.0) / 3));
  EXPECT_EQ(line->tokens, 3 * 4096);
  EXPECT_EQ(line->targets, 400);
  EXPECT_EQ(line->accuracy, 0.625);
  EXPECT_FALSE(line->margin.has_value());
  EXPECT_FALSE(line->skipped);
}

TEST(StepLedger, LineKeysAndNumbersAreStable) {
  StepLedger ledger({kStepStage1});
  const auto line = ledger.add(kStepStage1, of_second(7));
  ASSERT_TRUE(line.has_value());
  const std::string text = to_json(*line).dump();
  EXPECT_EQ(
      text.find(
          R"({"step":7,"loss":0.30000000000000004,"margin":null,"accuracy":null,"grad_norm":1.5,)"
          R"("learning_rate":null,"tokens":4096,"targets":0,"seconds":1.9,"tokens_per_second":)"),
      0U)
      << text;
  const auto read = nlohmann::json::parse(text);
  EXPECT_EQ(read.at("loss").get<double>(), 0.1 + 0.2);
  EXPECT_EQ(read.at("tokens_per_second").get<double>(), line->tokens_per_second);
  for (const char* key : {"bytes_forward", "bytes_backward", "bytes_sync"}) {
    EXPECT_TRUE(read.contains(key)) << key;
  }
}

TEST(StepLedger, MedianIgnoresSingleSlowStep) {
  StepLedger ledger({kStepStage0});
  EXPECT_EQ(ledger.median_seconds(), 0);
  for (int step = 1; step <= 100; ++step) {
    StepDone done = of_first(step);
    done.seconds = step % 10 == 0 ? 50 : 3;
    ledger.add(kStepStage0, done);
  }
  EXPECT_EQ(ledger.median_seconds(), 3);
}

}  // namespace
}  // namespace strait::run
