// With trained layers in upper stages only, what enters the first of them is kept at a sample's
// first visit. The bits are those of a run that computes and sends every row at every visit.
#include "stages/frozen_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/stages/compare_runs.h"

namespace strait::stages {
namespace {

using Direction = BoundaryTraffic::Direction;
using Blocks = std::vector<std::pair<int, int>>;

constexpr std::int64_t kRowBytes = 16 * 16 * 4;
constexpr std::int64_t kRows = 24;
constexpr std::size_t kEpochSteps = 3;  // of 4 micro-batches of 2 rows

// Adapters in the upper two of four blocks, so that layer 3 is the first trained one.
RunSettings upper_adapters(const Blocks& blocks) {
  models::Lora lora;
  lora.rank = 2;
  lora.blocks = {2, 3};
  RunSettings settings;
  settings.steps = 20;  // several epochs
  settings.lora = std::make_shared<const models::Lora>(lora);
  settings.tied = false;
  settings.dropout = 0;
  settings.evaluate = true;
  settings.blocks = blocks;
  return settings;
}

RunSettings keeping(RunSettings settings) {
  // Half of the rows in memory, the others on disk.
  settings.frozen_rows = {kRowBytes, kRows / 2 * kRowBytes, kRows * kRowBytes, kRows};
  return settings;
}

const std::vector<Blocks>& partitions() {
  static const std::vector<Blocks> all = {{{0, 3}},
                                          {{0, 1}, {2, 3}},
                                          {{0, 0}, {1, 3}},
                                          {{0, 2}, {3, 3}},
                                          {{0, 0}, {1, 1}, {2, 2}, {3, 3}}};
  return all;
}

std::uint64_t forward_bytes(const RunResult& result, std::size_t step, const std::string& name) {
  std::uint64_t bytes = 0;
  for (const BoundaryTraffic& one : result.sent.at(step)) {
    if (one.boundary == name && one.direction == Direction::forward)
      bytes += one.traffic.payload_bytes;
  }
  return bytes;
}

TEST(FrozenRows, EverySplitAndScheduleHasTheBitsOfRowsComputedAnew) {
  const RunResult whole = run_stages(upper_adapters(partitions()[0]));
  ASSERT_LT(whole.losses.back(), whole.losses.front()) << "nothing was learnt";
  for (const Blocks& blocks : partitions()) {
    for (const auto& [schedule, depth] : {std::pair{"gpipe", 0}, {"1f1b", 1}, {"zero_bubble", 0}}) {
      for (const bool recompute : {false, true}) {
        if (recompute && depth == 0) continue;
        RunSettings settings = keeping(upper_adapters(blocks));
        settings.schedule = schedule;
        settings.depth = depth;
        settings.recompute = recompute;
        expect_same_run(
            whole, run_stages(settings),
            testing::PrintToString(blocks) + " " + schedule + (recompute ? ", recompute" : ""));
      }
    }
  }
  RunSettings chunked = keeping(upper_adapters(partitions()[4]));
  chunked.chunks = 2;
  chunked.schedule = "interleaved";
  expect_same_run(whole, run_stages(chunked), "two chunks a stage");
}

TEST(FrozenRows, AreSentAndComputedInTheFirstEpochOnly) {
  RunSettings settings = keeping(upper_adapters(partitions()[4]));
  const RunResult run = run_stages(settings);
  ASSERT_TRUE(run.errors.empty()) << run.errors.front();
  ASSERT_EQ(run.sent.size(), 20U);
  for (std::size_t step = 0; step < run.sent.size(); ++step) {
    for (const char* below : {"0.0>1.0", "1.0>2.0"}) {
      EXPECT_EQ(forward_bytes(run, step, below) > 0, step < kEpochSteps) << below << " " << step;
    }
    EXPECT_GT(forward_bytes(run, step, "2.0>3.0"), 0U) << "above a trained layer, step " << step;
  }
  const codec::Traffic gradients = sum_of(run, Direction::backward, true);
  EXPECT_EQ(gradients.messages, 20U * 4) << "only from stage 3 to stage 2";
}

// A disk reserves what a store may fill.
TEST(FrozenRows, TakeNoMoreOfTheDiskThanTheyNeed) {
  const RunSettings settings = keeping(upper_adapters(partitions()[1]));
  RunSettings roomy = settings;
  roomy.frozen_rows.disk_bytes = std::int64_t{1} << 40;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 8 << 20;  // links have memory, too
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const RunResult run = run_stages(roomy);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  expect_same_run(run_stages(settings), run, "room for more");
}

TEST(FrozenRows, NarrowWireHasTheBitsOfRowsSentAnew) {
  RunSettings settings = upper_adapters(partitions()[4]);
  settings.boundary.codec.wire_dtype = codec::WireDtype::bfloat16;
  const RunResult kept = run_stages(keeping(settings));
  expect_same_run(run_stages(settings), kept, "bfloat16 between stages");
  EXPECT_EQ(forward_bytes(kept, kEpochSteps, "0.0>1.0"), 0U);
}

TEST(FrozenRows, OtherTypesFamiliesAndOrdersHaveTheSameBits) {
  std::vector<RunSettings> cases(5, upper_adapters(partitions()[1]));
  cases[0].bfloat16 = true;
  cases[1].llama = true;
  cases[2].shuffle = false;
  cases[3].threads = 2;
  cases[4].micro_batches = 5;  // epochs end in the middle of a step
  for (const RunSettings& one : cases) {
    RunSettings kept = keeping(one);
    if (one.llama) {
      kept.frozen_rows.entry_bytes *= 2;
      kept.frozen_rows.disk_bytes *= 2;
    }
    expect_same_run(run_stages(one), run_stages(kept),
                    "case " + std::to_string(&one - cases.data()));
  }
}

TEST(FrozenRows, ResumedRunBeginsWithoutRowsAndHasTheSameBits) {
  for (const int stop : {5, 11}) {  // in the middle of an epoch
    RunSettings settings = keeping(upper_adapters(partitions()[1]));
    settings.evaluate = false;
    const RunResult whole = run_stages(settings);
    RunSettings until = settings;
    until.stop_at = stop;
    const RunResult stopped = run_stages(until);
    ASSERT_TRUE(stopped.errors.empty()) << stopped.errors.front();
    ASSERT_EQ(stopped.steps, stop);
    const RunResult resumed = run_stages(settings, stopped.saved, stopped.steps);
    expect_same_run(whole, joined(stopped, resumed), "stopped at " + std::to_string(stop));
    const auto first = static_cast<std::size_t>(stop);
    EXPECT_GT(forward_bytes(resumed, first, "0.0>1.0"), 0U);
    EXPECT_EQ(forward_bytes(resumed, first + 2 * kEpochSteps, "0.0>1.0"), 0U);
  }
}

TEST(FrozenRows, ReplicasKeepTheirOwnRows) {
  RunSettings settings = upper_adapters(partitions()[1]);
  settings.replicas = 2;
  settings.micro_batches = 2;
  settings.sync.method = "allreduce";
  const RunResult kept = run_stages(keeping(settings));
  expect_same_run(run_stages(settings), kept, "two replicas");
  for (const char* boundary : {"0.0>1.0", "0.1>1.1"}) {
    EXPECT_GT(forward_bytes(kept, kEpochSteps - 1, boundary), 0U);
    EXPECT_EQ(forward_bytes(kept, kEpochSteps, boundary), 0U);
  }
}

TEST(FrozenRows, ReferenceOfPreferencesPassesThem) {
  RunSettings settings = upper_adapters(partitions()[1]);
  settings.preference.loss = PreferenceLoss::dpo;
  expect_same_run(run_stages(settings), run_stages(keeping(settings)), "dpo");
}

}  // namespace
}  // namespace strait::stages
