#include <gtest/gtest.h>

#include "launcher/run/checkpoint_committer.h"

namespace strait::run {
namespace {

const net::ProcessName kStage0{0, 0};
const net::ProcessName kStage1{1, 0};

ShardsWritten part(std::int64_t step, const std::string& name) {
  return {store::Step{step}, {{name, 10, "hash"}}};
}

TEST(CheckpointLedger, CompletesWithLastPart) {
  CheckpointLedger ledger(2);
  EXPECT_FALSE(ledger.written(kStage1, part(10, "b")).has_value());
  EXPECT_FALSE(ledger.written(kStage1, part(20, "b")).has_value());
  const auto files = ledger.written(kStage0, part(10, "a"));
  ASSERT_TRUE(files.has_value());
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ((*files)[0].name, "a");  // in the order of the processes, not of the reports
  EXPECT_EQ((*files)[1].name, "b");
}

TEST(CheckpointLedger, FailedPartDropsWholeCheckpoint) {
  CheckpointLedger ledger(2);
  ledger.written(kStage0, part(10, "a"));
  EXPECT_TRUE(ledger.failed(store::Step{10}, 0));
  EXPECT_FALSE(ledger.failed(store::Step{10}, 0));
  EXPECT_FALSE(ledger.written(kStage1, part(10, "b")).has_value());
  EXPECT_FALSE(ledger.written(kStage0, part(20, "a")).has_value());
  EXPECT_TRUE(ledger.written(kStage1, part(20, "b")).has_value());
}

TEST(CheckpointLedger, RefusesPartThatArrivesTwice) {
  CheckpointLedger ledger(2);
  ledger.written(kStage0, part(10, "a"));
  EXPECT_THROW(ledger.written(kStage0, part(10, "a")), base::MessageError);
}

TEST(CheckpointLedger, RemainingProcessesWriteAgainInNewEpoch) {
  CheckpointLedger ledger(3);
  ledger.written(kStage0, part(10, "a"));
  EXPECT_EQ(ledger.regroup(1, 2), std::vector{store::Step{10}});
  EXPECT_FALSE(ledger.outdated(store::Step{10}, 0));  // already requested again
  EXPECT_TRUE(ledger.outdated(store::Step{20}, 0));
  EXPECT_FALSE(ledger.outdated(store::Step{20}, 0));
  EXPECT_FALSE(ledger.outdated(store::Step{20}, 1));
  ShardsWritten again = part(10, "a");
  again.epoch = 1;
  EXPECT_FALSE(ledger.written(kStage0, again).has_value());
  EXPECT_TRUE(ledger.written(kStage1, again).has_value());
}

}  // namespace
}  // namespace strait::run
