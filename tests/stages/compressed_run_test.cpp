#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/stages/compare_runs.h"

// Runs with compressed boundaries: the same bits for every schedule, a loss near that of raw, and
// no wrong value after any damage to the caches.
namespace strait::stages {
namespace {

using Direction = BoundaryTraffic::Direction;

RunSettings compressed(const std::string& forward, int bits) {
  RunSettings settings;
  settings.steps = 20;  // several epochs
  settings.blocks = {{0, 1}, {2, 2}, {3, 3}};
  settings.boundary.codec.forward = forward;
  settings.boundary.codec.forward_bits = bits;
  settings.boundary.codec.backward = "fixed";
  settings.boundary.codec.backward_bits = 8;
  settings.boundary.cache.memory_bytes = 1 << 20;
  return settings;
}

// The cache of one end of a boundary: bytes of the entries by sample.
using Remembered = std::map<std::int64_t, std::vector<std::uint8_t>>;

Remembered read_cache(const Tensors& caches, const std::string& prefix) {
  const at::Tensor layout = caches.at(prefix + "layout");
  const auto width = layout[1].item<std::int64_t>();
  std::vector<at::Tensor> slabs;
  for (std::int64_t i = 0; i < layout[2].item<std::int64_t>(); ++i) {
    slabs.push_back(caches.at(prefix + "slab." + std::to_string(i)));
  }
  const at::Tensor slots = at::cat(slabs);
  const at::Tensor index = caches.at(prefix + "index");
  Remembered remembered;
  for (std::int64_t i = 0; i < index.size(0); ++i) {
    const at::Tensor slot = slots[index[i][1]];
    const auto* bytes = static_cast<const std::uint8_t*>(slot.const_data_ptr());
    remembered[index[i][0].item<std::int64_t>()] = {
        bytes, bytes + kernels::entry_bytes(index[i][2].item<std::int64_t>(), width)};
  }
  return remembered;
}

// Caches of all ends, by the first part of their names.
std::map<std::string, Remembered> read_caches(const RunResult& result) {
  std::map<std::string, Remembered> ends;
  const std::string last = "layout";
  for (const auto& [name, tensor] : result.caches) {
    if (!name.ends_with(last)) continue;
    const std::string prefix = name.substr(0, name.size() - last.size());
    ends[prefix] = read_cache(result.caches, prefix);
    EXPECT_FALSE(ends[prefix].empty()) << prefix;
  }
  return ends;
}

void expect_same_run_and_caches(const RunResult& left, const RunResult& right,
                                const std::string& what) {
  expect_same_run(left, right, what);
  EXPECT_TRUE(read_caches(left) == read_caches(right)) << what << ": other things are remembered";
}

// The caches of both ends of every boundary are equal; `what`: "" or "-gradients".
void expect_ends_agree(const RunResult& result, const std::string& what = "") {
  const std::map<std::string, Remembered> ends = read_caches(result);
  for (const std::string boundary : {"cache/boundary-0/0/", "cache/boundary-1/0/"}) {
    const std::string sent = boundary + "sent" + what + "/";
    const std::string received = boundary + "received" + what + "/";
    ASSERT_TRUE(ends.contains(sent)) << boundary;
    ASSERT_TRUE(ends.contains(received)) << boundary;
    EXPECT_TRUE(ends.at(sent) == ends.at(received)) << boundary;
  }
}

RunSettings with_cached_gradients() {
  RunSettings settings = compressed("delta", 4);
  settings.boundary.codec.backward = "delta";
  settings.boundary.codec.backward_bits = 2;
  return settings;
}

double last_losses(const RunResult& result) {
  double sum = 0;
  for (std::size_t i = result.losses.size() - 5; i < result.losses.size(); ++i) {
    sum += result.losses[i];
  }
  return sum / 5;
}

TEST(CompressedRun, EveryScheduleAndDepthGivesSameBits) {
  for (RunSettings settings :
       {compressed("fixed", 4), compressed("delta", 4), with_cached_gradients()}) {
    settings.schedule = "gpipe";
    const RunResult reference = run_stages(settings);
    ASSERT_EQ(reference.losses.size(), 20U);
    settings.schedule = "1f1b";
    for (settings.depth = 0; settings.depth <= 2; ++settings.depth) {
      expect_same_run_and_caches(reference, run_stages(settings),
                                 "1f1b depth " + std::to_string(settings.depth));
    }
  }
}

TEST(CompressedRun, LearnsLikeRawRun) {
  RunSettings raw = compressed("raw", 4);
  raw.boundary.codec.backward = "raw";
  raw.steps = 40;
  const double expected = last_losses(run_stages(raw));
  const auto check = [&](const std::string& what, RunSettings settings) {
    settings.steps = raw.steps;
    const RunResult result = run_stages(settings);
    ASSERT_TRUE(result.errors.empty()) << what << ": " << result.errors.front();
    ASSERT_LT(result.losses.back(), result.losses.front()) << what << ": nothing was learnt";
    EXPECT_NEAR(last_losses(result) / expected, 1.0, 0.01) << what;
    EXPECT_EQ(sum_of(result, Direction::forward, false).resends, 0U) << what;
  };
  check("fixed 8/8", compressed("fixed", 8));
  check("fixed 4/8", compressed("fixed", 4));
  check("delta 4/8", compressed("delta", 4));
  RunSettings settings = compressed("delta", 4);
  settings.boundary.codec.first_bits = 16;
  check("delta 4/8, first visits in bfloat16", settings);
  check("delta 4/2 of gradients too", with_cached_gradients());
}

TEST(CompressedRun, GradientsAreSentAsChangesOnceTheyAreNear) {
  RunSettings settings = with_cached_gradients();
  settings.steps = 40;
  const RunResult result = run_stages(settings);
  ASSERT_TRUE(result.errors.empty()) << result.errors.front();
  const codec::Traffic sent = sum_of(result, Direction::backward, true);
  const codec::Traffic received = sum_of(result, Direction::backward, false);
  EXPECT_GT(sent.hits, 0U);
  EXPECT_GE(sent.cache_misses, 2U * 24);
  EXPECT_EQ(sent.hits + sent.cache_misses, sent.rows);
  EXPECT_EQ(received.hits, sent.hits);
  EXPECT_EQ(received.resends, 0U);
  expect_ends_agree(result);
  expect_ends_agree(result, "-gradients");
}

TEST(CompressedRun, Bfloat16ModelKeepsItsTypeAndLearns) {
  RunSettings raw = compressed("raw", 4);
  raw.boundary.codec.backward = "raw";
  raw.bfloat16 = true;
  raw.boundary.codec.wire_dtype = codec::WireDtype::bfloat16;
  RunSettings delta = compressed("delta", 4);
  delta.bfloat16 = true;
  const RunResult result = run_stages(delta);
  ASSERT_TRUE(result.errors.empty()) << result.errors.front();
  EXPECT_NEAR(last_losses(result) / last_losses(run_stages(raw)), 1.0, 0.01);
  expect_ends_agree(result);
}

TEST(CompressedRun, CountsTraffic) {
  const RunSettings settings = compressed("delta", 4);
  const RunResult result = run_stages(settings);
  ASSERT_TRUE(result.errors.empty()) << result.errors.front();
  const codec::Traffic sent = sum_of(result, Direction::forward, true);
  const codec::Traffic received = sum_of(result, Direction::forward, false);
  // Each of 24 samples misses the cache once on each of two boundaries; a step has 8 rows.
  EXPECT_EQ(sent.rows, 2U * 20 * 8);
  EXPECT_EQ(sent.cache_misses, 2U * 24);
  EXPECT_EQ(sent.hits, sent.rows - sent.cache_misses);
  EXPECT_EQ(received.hits, sent.hits);
  EXPECT_EQ(received.cache_misses, sent.cache_misses);
  EXPECT_EQ(received.payload_bytes, sent.payload_bytes);
  EXPECT_EQ(received.cache_bytes, sent.cache_bytes);
  EXPECT_GT(sent.cache_bytes, 0U);
  EXPECT_LT(sent.payload_bytes, sent.raw_bytes / 3);
  const codec::Traffic gradients = sum_of(result, Direction::backward, true);
  EXPECT_EQ(gradients.rows, sent.rows);
  EXPECT_EQ(gradients.raw_bytes, sent.raw_bytes);
  EXPECT_EQ(gradients.cache_misses, 0U);

  ASSERT_EQ(result.sent.size(), 20U);
  std::uint64_t forward_bytes = 0;
  for (std::size_t step = 0; step < result.sent.size(); ++step) {
    ASSERT_EQ(result.sent[step].size(), 4U) << "two ends of each of two boundaries";
    for (const BoundaryTraffic& one : result.sent[step]) {
      EXPECT_TRUE(one.sent);
      EXPECT_EQ(one.traffic.rows, 8U) << "step " << step << ", " << one.boundary;
      if (one.direction == Direction::forward) forward_bytes += one.traffic.payload_bytes;
    }
  }
  EXPECT_EQ(forward_bytes, sent.payload_bytes) << "the steps' shares are all there was";
  const codec::Traffic late =
      std::ranges::find(result.sent.back(), Direction::forward, &BoundaryTraffic::direction)
          ->traffic;
  EXPECT_GT(late.changed_value_squares, 0);
  EXPECT_LT(late.change_squares, late.changed_value_squares) << "changes are small";
  EXPECT_LT(late.error_squares, late.change_squares);
}

TEST(CompressedRun, EvaluationLeavesCachesUnchanged) {
  RunSettings settings = compressed("delta", 4);
  RunResult without = run_stages(settings);
  settings.evaluate = true;
  const RunResult with = run_stages(settings);
  ASSERT_EQ(with.evaluations.size(), 3U);
  without.evaluations = with.evaluations;
  expect_same_run_and_caches(without, with, "evaluated");
  EXPECT_EQ(with.traffic, without.traffic);
}

TEST(CompressedRun, AutoWithoutMeasurementIsDelta) {
  RunSettings settings = compressed("delta", 4);
  const RunResult delta = run_stages(settings);
  settings.boundary.codec.forward = "auto";
  settings.boundary.codec.backward = "auto";
  // A memory link has no measured bandwidth, so the first choice stays.
  expect_same_run_and_caches(delta, run_stages(settings), "auto");
}

// A run that stops after 11 steps, with its checkpoint.
RunResult first_part(RunSettings settings) {
  settings.stop_at = 11;
  RunResult stopped = run_stages(settings);
  EXPECT_TRUE(stopped.errors.empty()) << stopped.errors.front();
  EXPECT_EQ(stopped.steps, 11);
  return stopped;
}

TEST(CompressedRun, ResumedWithCachesEqualsUninterruptedRun) {
  RunSettings settings = compressed("delta", 4);
  const auto check = [&](const std::string& what) {
    const RunResult whole = run_stages(settings);
    const RunResult stopped = first_part(settings);
    const RunResult rest = run_stages(settings, stopped.saved, stopped.steps, stopped.caches);
    expect_same_run_and_caches(whole, joined(stopped, rest), what);
    EXPECT_EQ(sum_of(rest, Direction::forward, false).resends, 0U) << what;
    return whole;
  };
  check("everything fits");
  // An entry is at most 16 tokens of width 16 in bfloat16.
  settings.boundary.cache.memory_bytes = 10 * 512;
  EXPECT_GT(sum_of(check("ten of 24 fit"), Direction::forward, true).evictions, 0U);
  settings = with_cached_gradients();
  settings.boundary.cache.memory_bytes = 10 * 512;
  check("ten of 24 gradients fit");
}

TEST(CompressedRun, ResumedWithoutCachesStartsThemEmptyAndLearns) {
  const RunSettings settings = compressed("delta", 4);
  const RunResult stopped = first_part(settings);
  const RunResult rest = run_stages(settings, stopped.saved, stopped.steps);
  ASSERT_TRUE(rest.errors.empty()) << rest.errors.front();
  const codec::Traffic sent = sum_of(rest, Direction::forward, true);
  EXPECT_EQ(sent.cache_misses, 2U * 24) << "every sample once more";
  EXPECT_EQ(sent.resends, 0U) << "the ends agree";
  expect_ends_agree(rest);
  EXPECT_NEAR(last_losses(rest) / last_losses(run_stages(settings)), 1.0, 0.01);
}

TEST(CompressedRun, ReceiverWithoutCacheGetsRowsResentBitForBit) {
  RunSettings settings = compressed("delta", 4);
  settings.blocks = {{0, 1}, {2, 3}};
  settings.depth = 1;
  const RunResult whole = run_stages(settings);
  const RunResult stopped = first_part(settings);
  settings.finds_caches = [](std::size_t stage) { return stage == 0; };
  const RunResult rest = run_stages(settings, stopped.saved, stopped.steps, stopped.caches);
  expect_same_run_and_caches(whole, joined(stopped, rest), "healed");
  const codec::Traffic sent = sum_of(rest, Direction::forward, true);
  EXPECT_EQ(sent.resends, 24U) << "each sample at its first visit";
  EXPECT_EQ(sum_of(rest, Direction::forward, false).resends, sent.resends);
}

// Flips one bit in the cache of `stage` in some samples, once.
void turn_bits(Stage& stage) {
  int turned = 0;
  for (const tensors::NamedTensor& saved : stage.saved_caches()) {
    if (saved.tensor.scalar_type() != at::kByte) continue;
    auto* bytes = static_cast<std::uint8_t*>(saved.tensor.mutable_data_ptr());
    for (std::int64_t at = 7; at < saved.tensor.numel(); at += 1500) {
      bytes[at] ^= 1U;
      ++turned;
    }
  }
  ASSERT_GT(turned, 2) << "nothing was remembered";
}

TEST(CompressedRun, FlippedBitAtReceiverIsDetectedResentAndCounted) {
  RunSettings settings = compressed("delta", 4);
  settings.checkpoint_every = 9;
  const RunResult whole = run_stages(settings);
  settings.at_checkpoint = [](Stage& stage, std::size_t index, store::Step steps) {
    if (index == 2 && number(steps) == 9) turn_bits(stage);
  };
  const RunResult healed = run_stages(settings);
  expect_same_run_and_caches(whole, healed, "a bit turned");
  const codec::Traffic sent = sum_of(healed, Direction::forward, true);
  EXPECT_GT(sent.resends, 2U);
  EXPECT_LE(sent.resends, 24U);
  EXPECT_EQ(sum_of(healed, Direction::forward, false).resends, sent.resends);
  std::uint64_t by_step = 0;
  for (const std::vector<BoundaryTraffic>& step : healed.sent) {
    for (const BoundaryTraffic& one : step) by_step += one.traffic.resends;
  }
  EXPECT_EQ(by_step, sent.resends) << "the steps' shares are all there was";
}

TEST(CompressedRun, FlippedBitAtSenderKeepsEndsEqual) {
  RunSettings settings = compressed("delta", 4);
  settings.checkpoint_every = 9;
  settings.at_checkpoint = [](Stage& stage, std::size_t index, store::Step steps) {
    if (index == 0 && number(steps) == 9) turn_bits(stage);
  };
  const RunResult healed = run_stages(settings);
  ASSERT_TRUE(healed.errors.empty()) << healed.errors.front();
  EXPECT_GT(sum_of(healed, Direction::forward, true).resends, 2U);
  expect_ends_agree(healed);
  EXPECT_LT(last_losses(healed), healed.losses.front());
}

TEST(CompressedRun, NaNSkipsStepOnAllStages) {
  for (const std::string forward : {"fixed", "delta"}) {
    RunSettings settings = compressed(forward, 4);
    constexpr std::int64_t kStep = 6;
    float kept = 0;
    const auto poisoned = [](const Phase& phase, std::size_t stage,
                             const schedules::Action& action) {
      return phase.training && number(phase.step) == kStep && stage == 0 &&
             action.work == schedules::Work::forward && number(action.micro_batch) == 1;
    };
    const auto weight = [](Stage& stage) {
      return static_cast<float*>(stage.optimizer().slots().back().master.mutable_data_ptr());
    };
    settings.before = [&](Stage& stage, std::size_t index, const Phase& phase,
                          const schedules::Action& action) {
      if (!poisoned(phase, index, action)) return;
      kept = *weight(stage);
      *weight(stage) = std::numeric_limits<float>::quiet_NaN();
    };
    settings.after = [&](Stage& stage, std::size_t index, const Phase& phase,
                         const schedules::Action& action) {
      if (poisoned(phase, index, action)) *weight(stage) = kept;
    };
    const RunResult result = run_stages(settings);
    ASSERT_TRUE(result.errors.empty()) << result.errors.front();
    ASSERT_EQ(result.losses.size(), 20U);
    for (std::size_t step = 0; step < 20; ++step) {
      EXPECT_EQ(result.skips[step], step == kStep) << step;
      EXPECT_EQ(std::isfinite(result.losses[step]), step != kStep) << step;
    }
    EXPECT_LT(last_losses(result), result.losses.front());
    EXPECT_GT(sum_of(result, Direction::forward, true).refused_rows, 0U);
    EXPECT_EQ(sum_of(result, Direction::forward, true).resends, 0U);
    if (forward == "delta") expect_ends_agree(result);
    for (const auto& [name, tensor] : result.saved) {
      EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << name;
    }
  }
}

}  // namespace
}  // namespace strait::stages
