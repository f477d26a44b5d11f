#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/stages/compare_runs.h"

// With the raw float32 codec a partitioned run equals a run in one process bit for bit, for every
// partition, schedule and depth, before and after a resume.
namespace strait::stages {
namespace {

using Blocks = std::vector<std::pair<int, int>>;

const std::vector<Blocks>& splits() {
  static const std::vector<Blocks> all = {{{0, 3}},
                                          {{0, 0}, {1, 3}},
                                          {{0, 1}, {2, 3}},
                                          {{0, 1}, {2, 2}, {3, 3}},
                                          {{0, 0}, {1, 1}, {2, 2}, {3, 3}}};
  return all;
}

// Every pair of a partition and a schedule, and every depth of a schedule, of a tied model; of one
// that is not tied every schedule. Campaigns run all combinations.
TEST(BitEquality, EveryPartitionScheduleAndDepthEqualsOneStage) {
  for (const bool tied : {true, false}) {
    RunSettings one;
    one.tied = tied;
    one.evaluate = true;
    const RunResult whole = run_stages(one);
    ASSERT_EQ(whole.losses.size(), 10U);
    ASSERT_LT(whole.losses.back(), whole.losses.front()) << "nothing was learnt";
    ASSERT_EQ(whole.evaluations.size(), 2U);
    for (const Blocks& blocks : splits()) {
      if (!campaigns() && !tied && blocks.size() != 3) continue;
      for (const auto& [schedule, deepest] :
           {std::pair{"gpipe", 0}, {"1f1b", 2}, {"zero_bubble", 1}}) {
        for (int depth = 0; depth <= deepest; ++depth) {
          const int stages = static_cast<int>(blocks.size());
          if (!campaigns() && depth != (stages + (tied ? 0 : 1)) % (deepest + 1)) continue;
          RunSettings split = one;
          split.blocks = blocks;
          split.schedule = schedule;
          split.depth = depth;
          expect_same_run(whole, run_stages(split),
                          testing::PrintToString(blocks) + " " + split.schedule + " depth " +
                              std::to_string(depth) + (tied ? " tied" : " untied"));
        }
      }
    }
  }
}

// Stages, chunks per stage, and the blocks of every chunk by position.
struct Interleaving {
  int chunks;
  Blocks blocks;
};

const std::vector<Interleaving>& interleavings() {
  static const std::vector<Interleaving> all = {{2, {{0, 0}, {1, 1}, {2, 2}, {3, 3}}},
                                                {2, {{0, 2}, {3, 3}}},
                                                {4, {{0, 0}, {1, 1}, {2, 2}, {3, 3}}}};
  return all;
}

TEST(BitEquality, SeveralChunksPerStageEqualOneStage) {
  for (const bool tied : {true, false}) {
    for (const int micro_batches : {1, 3, 4}) {
      if (!campaigns() && !tied && micro_batches != 3) continue;
      RunSettings one;
      one.tied = tied;
      one.evaluate = true;
      one.micro_batches = micro_batches;
      const RunResult whole = run_stages(one);
      for (const auto& [chunks, blocks] : interleavings()) {
        for (const int depth : {0, 1}) {
          if (!campaigns() && depth != (micro_batches + (tied ? 0 : 1)) % 2) continue;
          RunSettings split = one;
          split.blocks = blocks;
          split.chunks = chunks;
          split.schedule = "interleaved";
          split.depth = depth;
          expect_same_run(whole, run_stages(split),
                          testing::PrintToString(blocks) + " " + std::to_string(chunks) +
                              " chunks a stage, depth " + std::to_string(depth) + ", " +
                              std::to_string(micro_batches) + " micro-batches" +
                              (tied ? " tied" : " untied"));
        }
      }
    }
  }
}

TEST(BitEquality, ResumesWithOtherChunksAndRecomputation) {
  RunSettings settings;
  const RunResult whole = run_stages(settings);
  RunSettings chunked = settings;
  chunked.blocks = interleavings()[0].blocks;
  chunked.chunks = 2;
  chunked.schedule = "interleaved";
  chunked.recompute = true;
  for (const auto& [before, after] : {std::pair{chunked, settings}, std::pair{settings, chunked}}) {
    RunSettings until = before;
    until.stop_at = 8;
    const RunResult stopped = run_stages(until);
    ASSERT_TRUE(stopped.errors.empty()) << stopped.errors.front();
    ASSERT_EQ(stopped.steps, 8);
    const RunResult resumed = run_stages(after, stopped.saved, stopped.steps);
    expect_same_run(whole, joined(stopped, resumed),
                    before.chunks == 1 ? "to chunks" : "from chunks");
  }
}

TEST(BitEquality, TiedBfloat16WeightInTwoChunksSharesMaster) {
  RunSettings one;
  one.bfloat16 = true;
  const RunResult whole = run_stages(one);
  RunSettings chunked = one;
  chunked.blocks = {{0, 1}, {2, 3}};
  chunked.chunks = 2;
  chunked.schedule = "interleaved";
  expect_same_run(whole, run_stages(chunked), "one stage of two chunks");
}

// Gradients are sent during the last backwards: no chunk may announce its gradient too early.
TEST(BitEquality, ReplicasWithChunksEqualReplicasWithout) {
  RunSettings plain;
  plain.tied = false;  // a tied weight waits for its other gradient, and all others with it
  plain.replicas = 2;
  plain.sync.method = "allreduce";
  plain.blocks = {{0, 1}, {2, 3}};
  const RunResult expected = run_stages(plain);
  RunSettings chunked = plain;
  chunked.blocks = interleavings()[0].blocks;
  chunked.chunks = 2;
  chunked.schedule = "interleaved";
  expect_same_run(expected, run_stages(chunked), "two replicas of two stages of two chunks");
}

// Of a split backward, large weights announce their gradients in the last weight gradients, small
// ones in the last backward.
TEST(BitEquality, ReplicasWithSplitBackwardsEqualReplicasWithout) {
  for (const bool tied : {false, true}) {
    RunSettings plain;
    plain.tied = tied;
    plain.replicas = 2;
    plain.sync.method = "allreduce";
    const RunResult expected = run_stages(plain);
    RunSettings split = plain;
    split.blocks = splits()[3];
    split.schedule = "zero_bubble";
    expect_same_run(expected, run_stages(split), tied ? "tied" : "untied");
  }
}

// Every replica's tied table has one owner, which gets the gradients of looked-up rows before it
// syncs.
TEST(BitEquality, TiedReplicasOfAnyPartitionEqualReplicasOfOneStage) {
  RunSettings one;
  one.replicas = 2;
  one.evaluate = true;
  one.sync.method = "allreduce";
  const RunResult expected = run_stages(one);
  for (const Blocks& blocks : {splits()[2], splits()[3]}) {
    RunSettings split = one;
    split.blocks = blocks;
    expect_same_run(expected, run_stages(split),
                    "two replicas of " + testing::PrintToString(blocks));
  }
  RunSettings chunked = one;
  chunked.blocks = interleavings()[0].blocks;
  chunked.chunks = 2;
  chunked.schedule = "interleaved";
  expect_same_run(expected, run_stages(chunked), "two replicas of two stages of two chunks");
}

// The rows of the next step then come from the former weights.
TEST(BitEquality, SkippedStepsOfTiedModelEqualOneStage) {
  const auto with_skips = [](const Blocks& blocks) {
    RunSettings settings;
    settings.blocks = blocks;
    settings.evaluate = true;
    const int owner = static_cast<int>(blocks.size()) - 1;  // of the block below
    const auto spoil = [owner](float value, std::optional<float>* was) {
      return [=](Stage& stage, std::size_t process, const Phase& phase,
                 const schedules::Action& action) {
        const bool here = static_cast<int>(process) == owner && phase.training &&
                          (number(phase.step) == 4 || number(phase.step) == 6) &&
                          action.work == schedules::Work::forward;
        if (!here) return;
        const at::NoGradGuard no_grad;
        for (const AdamW::Slot& slot : stage.optimizer().slots()) {
          if (slot.name != "transformer.h.3.ln_1.bias") continue;
          const at::Tensor first = slot.master[0];
          if (std::isnan(value)) *was = first.item<float>();
          first.fill_(std::isnan(value) ? value : **was);
        }
      };
    };
    static std::optional<float> was;  // until it is put back
    settings.before = spoil(std::numeric_limits<float>::quiet_NaN(), &was);
    settings.after = spoil(0, &was);
    return run_stages(settings);
  };
  RunResult whole = with_skips(splits()[0]);
  ASSERT_TRUE(whole.skips[4] && whole.skips[6] && !whole.skips[5]);
  for (std::size_t i = 1; i < splits().size(); ++i) {
    RunResult split = with_skips(splits()[i]);
    EXPECT_EQ(split.skips, whole.skips);
    for (RunResult* run : {&whole, &split}) {
      for (const std::size_t step : {4, 6}) run->losses[step] = run->norms[step] = 0;  // NaN
    }
    expect_same_run(whole, split, testing::PrintToString(splits()[i]));
  }
}

TEST(BitEquality, FewerMicroBatchesThanStagesEqualsOneStage) {
  for (const int micro_batches : {1, 2}) {
    RunSettings one;
    one.micro_batches = micro_batches;
    const RunResult whole = run_stages(one);
    RunSettings split = one;
    split.blocks = splits().back();
    split.depth = 1;
    expect_same_run(whole, run_stages(split), std::to_string(micro_batches) + " micro-batches");
    split.schedule = "zero_bubble";
    expect_same_run(whole, run_stages(split), std::to_string(micro_batches) + ", zero bubble");
  }
}

TEST(BitEquality, HoldsForEqualThreadsPerProcess) {
  RunSettings one;
  one.threads = 2;
  const RunResult whole = run_stages(one);
  for (const Blocks& blocks : {splits()[1], splits()[3]}) {
    RunSettings split = one;
    split.blocks = blocks;
    expect_same_run(whole, run_stages(split), "two threads, " + testing::PrintToString(blocks));
  }
}

TEST(BitEquality, RecomputationKeepsDropoutMasksAndBits) {
  RunSettings kept;
  const RunResult whole = run_stages(kept);
  RunSettings again = kept;
  again.recompute = true;
  expect_same_run(whole, run_stages(again), "recompute, one stage");
  again.blocks = splits()[2];
  expect_same_run(whole, run_stages(again), "recompute, two stages");
  again.schedule = "zero_bubble";
  expect_same_run(whole, run_stages(again), "recompute, two stages, split backwards");
}

TEST(BitEquality, ResumedRunEqualsUninterruptedRun) {
  RunSettings settings;
  settings.blocks = splits()[2];
  const RunResult whole = run_stages(settings);
  RunSettings until = settings;
  until.stop_at = 8;
  const RunResult stopped = run_stages(until);
  ASSERT_TRUE(stopped.errors.empty()) << stopped.errors.front();
  ASSERT_EQ(stopped.steps, 8) << "a stop is obeyed by all stages at the same step";
  for (const Blocks& blocks : {splits()[2], splits()[0], splits()[4]}) {
    RunSettings rest = settings;
    rest.blocks = blocks;
    const RunResult resumed = run_stages(rest, stopped.saved, stopped.steps);
    expect_same_run(whole, joined(stopped, resumed),
                    "resumed over " + testing::PrintToString(blocks));
  }
}

TEST(BitEquality, Bfloat16ParametersSplitAndResume) {
  RunSettings one;
  one.bfloat16 = true;
  one.evaluate = true;
  const RunResult whole = run_stages(one);
  ASSERT_LT(whole.losses.back(), whole.losses.front()) << "nothing was learnt";
  RunSettings split = one;
  split.blocks = splits()[1];
  split.boundary.codec.wire_dtype = codec::WireDtype::bfloat16;
  expect_same_run(whole, run_stages(split), "bfloat16");
  split.schedule = "zero_bubble";
  expect_same_run(whole, run_stages(split), "bfloat16, split backwards");
}

TEST(BitEquality, MuonSplitsAndResumes) {
  for (const bool narrow : {false, true}) {
    RunSettings one;
    one.muon = true;
    one.bfloat16 = narrow;
    one.moments = narrow ? MomentType::int8 : MomentType::float32;
    const RunResult whole = run_stages(one);
    ASSERT_LT(whole.losses.back(), whole.losses.front()) << "nothing was learnt";
    EXPECT_TRUE(whole.saved.contains("transformer.h.1.mlp.c_fc.weight.first_moment"));
    EXPECT_FALSE(whole.saved.contains("transformer.h.1.mlp.c_fc.weight.second_moment"));
    EXPECT_TRUE(whole.saved.contains("transformer.wte.weight.second_moment"));
    for (const Blocks& blocks : {splits()[1], splits()[3]}) {
      RunSettings split = one;
      split.blocks = blocks;
      if (narrow) split.boundary.codec.wire_dtype = codec::WireDtype::bfloat16;
      expect_same_run(whole, run_stages(split), "Muon, " + testing::PrintToString(blocks));
      RunSettings until = split;
      until.stop_at = 8;
      const RunResult stopped = run_stages(until);
      ASSERT_EQ(stopped.steps, 8);
      const RunResult resumed = run_stages(one, stopped.saved, stopped.steps);
      expect_same_run(whole, joined(stopped, resumed), "Muon, resumed in one stage");
    }
  }
}

TEST(BitEquality, OptimizerOnDiskEqualsOneInMemoryAndResumesFromEither) {
  for (const auto& [narrow, moments] : {std::pair{false, MomentType::float32},
                                        {true, MomentType::float32},
                                        {true, MomentType::int8}}) {
    RunSettings in_memory;
    in_memory.blocks = splits()[1];
    in_memory.steps = 8;
    in_memory.bfloat16 = narrow;
    in_memory.moments = moments;
    if (narrow) in_memory.boundary.codec.wire_dtype = codec::WireDtype::bfloat16;
    const RunResult whole = run_stages(in_memory);
    RunSettings on_disk = in_memory;
    on_disk.on_disk = true;
    expect_same_run(whole, run_stages(on_disk), "on disk");
    for (RunSettings until : {in_memory, on_disk}) {
      const RunSettings rest = until.on_disk ? in_memory : on_disk;
      until.stop_at = 4;
      const RunResult stopped = run_stages(until);
      ASSERT_EQ(stopped.steps, 4);
      expect_same_run(whole, joined(stopped, run_stages(rest, stopped.saved, stopped.steps)),
                      rest.on_disk ? "resumed on disk" : "resumed in memory");
    }
  }
}

// Each replica has the same sum of gradients, and multiplies the same matrices.
TEST(BitEquality, MuonReplicasEqualReplicasOfOtherSplits) {
  RunSettings one;
  one.muon = true;
  one.replicas = 2;
  one.sync.method = "allreduce";
  const RunResult expected = run_stages(one);
  RunSettings split = one;
  split.blocks = splits()[2];
  expect_same_run(expected, run_stages(split), "two replicas with Muon");
}

TEST(BitEquality, NarrowWireStaysCloseButDiffers) {
  const RunSettings one;
  const RunResult whole = run_stages(one);
  for (const codec::WireDtype type : {codec::WireDtype::bfloat16, codec::WireDtype::float16}) {
    RunSettings split = one;
    split.blocks = splits()[2];
    split.boundary.codec.wire_dtype = type;
    const RunResult narrow = run_stages(split);
    ASSERT_TRUE(narrow.errors.empty()) << narrow.errors.front();
    EXPECT_NE(whole.losses, narrow.losses) << "the wire was not narrow";
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(narrow.losses[i] / whole.losses[i], 1.0, 2e-2) << "step " << i;
    }
  }
}

TEST(BitEquality, LossDoesNotDependOnMicroBatchSize) {
  RunSettings four;
  four.dropout = 0;
  RunSettings one = four;
  one.micro_batches = 1;
  one.rows = 8;
  const RunResult in_four = run_stages(four);
  const RunResult in_one = run_stages(one);
  for (std::size_t i = 0; i < in_four.losses.size(); ++i) {
    // A mean of means would be off by per cents: the micro-batches have different numbers of
    // targets.
    EXPECT_NEAR(in_four.losses[i] / in_one.losses[i], 1.0, 1e-4) << "step " << i;
  }
  EXPECT_NEAR(in_four.losses[0] / in_one.losses[0], 1.0, 1e-6);
  EXPECT_NEAR(in_four.norms[0] / in_one.norms[0], 1.0, 1e-5);
  EXPECT_NEAR(in_four.losses[0], std::log(61.0), 0.3) << "a random model is as good as a guess";
}

}  // namespace
}  // namespace strait::stages
