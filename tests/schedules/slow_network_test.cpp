// The published table of what a slow network costs each schedule, and the depth that follows from
// it.
#include <gtest/gtest.h>

#include <array>

#include "schedules/choose_depth.h"

namespace strait::schedules::slow_network_test {
namespace {

// GPT2-XL in 8 stages, one sequence of 1024 tokens per micro-batch, 32 of them, at 100 Mbit/s.
constexpr int kStages = 8;
constexpr int kMicroBatches = 32;

// An activation of 1024 x 1600 float32 is 6,553,600 bytes: 0.5243 s on the wire. A stage's forward
// and backward of it take 0.1808 s together, 2.9 times less: 32 sequences in (32 + 7) * 0.1808 =
// 7.05 s or 4.5 per second with perfectly even stages, where 4.0 are reported on real stages of 6
// and 7 layers (0.1808 * 7/6 would give 3.9). Units are chosen so that forward and backward are 1.
constexpr double kTransfer = 2.9;
constexpr double kForward = 1.0 / 3;  // a backward does the products for two gradients
constexpr double kBackward = 2.0 / 3;

// Bits per value as sent: a quantised group of 64 values carries one 16-bit scale, a quarter bit
// each.
double sent_bits(int bits) { return bits < 16 ? bits + 16.0 / 64 : bits; }

std::vector<ChunkCost> chunk_costs() {
  return std::vector<ChunkCost>(
      kStages, ChunkCost{.forward_seconds = kForward, .backward_seconds = kBackward});
}

std::vector<LinkCost> link_costs(int forward_bits, int backward_bits) {
  const LinkCost link{.forward_bytes = kTransfer * sent_bits(forward_bits) / 32,
                      .backward_bytes = kTransfer * sent_bits(backward_bits) / 32,
                      .forward_bytes_per_second = 1,
                      .backward_bytes_per_second = 1};
  return std::vector<LinkCost>(kStages - 1, link);
}

struct Column {
  const char* schedule;
  int depth;
  int peak;
};

constexpr std::array kColumns = {Column{"gpipe", 0, 32}, Column{"1f1b", 0, 8},
                                 Column{"1f1b", 1, 15}, Column{"1f1b", 2, 22}};

struct Row {
  int forward_bits;
  int backward_bits;
  std::array<double, 4> times_as_long;
};

constexpr std::array kTable = {
    Row{32, 32, {5.86, 6.06, 3.81, 3.84}}, Row{16, 16, {3.03, 3.53, 2.21, 1.95}},
    Row{4, 8, {1.31, 1.99, 1.25, 1.20}}, Row{4, 4, {1.18, 1.67, 1.14, 1.14}}};

TEST(SlowNetwork, EveryFigureOfThePublishedTableComesOut) {
  const double ideal = (kMicroBatches + kStages - 1) * (kForward + kBackward);
  for (const Row& row : kTable) {
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const Column& column = kColumns.at(i);
      const PipelineShape shape{kStages, kMicroBatches, column.depth};
      const Forecast forecast =
          simulate(action_lists(schedule_named(column.schedule), shape), chunk_costs(),
                   link_costs(row.forward_bits, row.backward_bits));
      EXPECT_NEAR(forecast.seconds / ideal, row.times_as_long.at(i), 0.005)
          << column.schedule << " depth " << column.depth << " at " << row.forward_bits << "/"
          << row.backward_bits << " bits";
      EXPECT_EQ(forecast.stages[0].peak_in_flight, column.peak);
    }
  }
}

int chosen_depth(int forward_bits, int backward_bits, int most_in_flight) {
  return choose_depth(schedule_named("1f1b"), {kStages, kMicroBatches, 0}, chunk_costs(),
                      link_costs(forward_bits, backward_bits), most_in_flight);
}

TEST(ChooseDepth, IsTheSmallestThatIsAsGoodAsTheBest) {
  EXPECT_EQ(chosen_depth(32, 32, 100), 1);  // 3.81 and 3.84
  EXPECT_EQ(chosen_depth(16, 16, 100), 2);  // 2.21 and 1.95
  EXPECT_EQ(chosen_depth(4, 4, 100), 1);    // 1.14 and 1.14
}

TEST(ChooseDepth, StaysWithinTheMemory) {
  EXPECT_EQ(chosen_depth(16, 16, 22), 2);
  EXPECT_EQ(chosen_depth(16, 16, 21), 1);
  EXPECT_EQ(chosen_depth(16, 16, 15), 1);
  EXPECT_EQ(chosen_depth(16, 16, 14), 0);
  EXPECT_EQ(chosen_depth(16, 16, 1), 0);  // not even plain 1F1B fits: the least there is
}

TEST(ChooseDepth, IsZeroWhereNothingIsGained) {
  const std::vector<LinkCost> fast(kStages - 1);
  const PipelineShape shape{kStages, kMicroBatches, 3};
  EXPECT_EQ(choose_depth(schedule_named("1f1b"), shape, chunk_costs(), fast, 100), 0);
  EXPECT_EQ(choose_depth(schedule_named("gpipe"), shape, chunk_costs(), link_costs(32, 32), 100),
            0);
  EXPECT_EQ(choose_depth(schedule_named("1f1b"), {1, 4, 0}, std::vector<ChunkCost>(1), {}, 100), 0);
}

}  // namespace
}  // namespace strait::schedules::slow_network_test
