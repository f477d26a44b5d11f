#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "framework/sync/sync_error.h"
#include "tests/framework/sync/quadratic.h"
#include "tests/framework/sync/random_stage.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

DirectRound::Maker power_maker(std::int64_t rank) {
  SyncSettings settings = usual("powersgd");
  settings.rank = rank;
  settings.seed = 5;
  return [settings] { return make_method(settings); };
}

// A layout of matrices, and a vector.
Layout matrices(std::mt19937_64& random) {
  const auto side = [&] { return static_cast<std::int64_t>(20 + random() % 40); };
  return Layout({{.name = "a", .shape = {side(), side()}},
                 {.name = "b", .shape = {side()}},
                 {.name = "c", .shape = {side(), 3, side()}}});
}

std::vector<double> sum_of(DirectRound& stage, bool with_gradients) {
  std::vector<double> sum(stage.replica(0).gradient.size());
  for (std::size_t i = 0; i < stage.size(); ++i) {
    const auto residual = stage.replica(i).slots.values("owed");
    for (std::size_t j = 0; j < sum.size(); ++j) {
      sum[j] += static_cast<double>(residual[j]);
      if (with_gradients) sum[j] += static_cast<double>(stage.replica(i).gradient[j]);
    }
  }
  return sum;
}

TEST(PowerSgd, ResultAndResidualSumToTheInput) {
  std::mt19937_64 random(1);
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    SCOPED_TRACE(replicas);
    DirectRound stage(matrices(random), replicas, power_maker(1 + replicas % 4));
    for (std::int64_t step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < replicas; ++i) {
        std::ranges::copy(random_values(stage.layout(), random), stage.replica(i).gradient.begin());
      }
      const auto before = sum_of(stage, true);
      stage.pass({step_number(step), Hook::gradient});
      const auto residual = sum_of(stage, false);
      for (std::size_t j = 0; j < before.size(); ++j) {
        const auto agreed = static_cast<double>(stage.replica(0).gradient[j]);
        ASSERT_NEAR(agreed + residual[j], before[j], 1e-3) << j;
      }
    }
  }
}

TEST(PowerSgd, SumsMatrixOfItsRankExactly) {
  std::mt19937_64 random(2);
  for (std::int64_t rank = 1; rank <= 4; ++rank) {
    SCOPED_TRACE(rank);
    DirectRound stage(matrices(random), 3, power_maker(rank));
    std::vector<double> sum(stage.replica(0).gradient.size());
    std::normal_distribution<float> normal;
    for (const Piece& piece : stage.layout().pieces()) {
      const auto rows = static_cast<std::size_t>(piece.spec.shape.front());
      const std::size_t columns = static_cast<std::size_t>(piece.range.count()) / rows;
      // A rank-one gradient for each of the first replicas.
      for (std::size_t i = 0; i < std::min<std::size_t>(3, static_cast<std::size_t>(rank)); ++i) {
        std::vector<float> left(rows);
        std::vector<float> right(columns);
        for (float& value : left) value = normal(random);
        for (float& value : right) value = normal(random);
        for (std::size_t j = 0; j < rows * columns; ++j) {
          const std::size_t at = static_cast<std::size_t>(piece.range.first) + j;
          const float value = left[j / columns] * right[j % columns];
          stage.replica(i).gradient[at] = value;
          sum[at] += static_cast<double>(value);
        }
      }
    }
    stage.pass({step_number(0), Hook::gradient});
    for (std::size_t j = 0; j < sum.size(); ++j) {
      ASSERT_NEAR(static_cast<double>(stage.replica(2).gradient[j]), sum[j], 1e-4);
    }
  }
}

// A constant gradient: the residual stays bounded, so the mean of the results converges to the
// gradient.
TEST(PowerSgd, ResidualIsSentLater) {
  std::mt19937_64 random(3);
  const Layout layout({{.name = "a", .shape = {40, 60}}});
  DirectRound stage(layout, 3, power_maker(2));
  std::vector<std::vector<float>> gradients;
  std::vector<double> missing(static_cast<std::size_t>(layout.size()));
  double whole = 0;
  constexpr int kRounds = 400;
  for (std::size_t i = 0; i < stage.size(); ++i) {
    gradients.push_back(random_values(layout, random));
    for (std::size_t j = 0; j < missing.size(); ++j) {
      missing[j] += static_cast<double>(gradients[i][j]) * kRounds;
    }
  }
  for (const double value : missing) whole += value * value;
  for (std::int64_t step = 0; step < kRounds; ++step) {
    for (std::size_t i = 0; i < stage.size(); ++i) {
      std::ranges::copy(gradients[i], stage.replica(i).gradient.begin());
    }
    stage.pass({step_number(step), Hook::gradient});
    for (std::size_t j = 0; j < missing.size(); ++j) {
      missing[j] -= static_cast<double>(stage.replica(0).gradient[j]);
    }
  }
  double left = 0;
  for (const double value : missing) left += value * value;
  EXPECT_LT(std::sqrt(left / whole), 0.1);
}

TEST(PowerSgd, SumsVectorsExactly) {
  std::mt19937_64 random(4);
  const Layout layout({{.name = "norm", .shape = {50}}, {.name = "small", .shape = {3, 4}}});
  DirectRound stage(layout, 3, power_maker(2));
  std::vector<float> sum(static_cast<std::size_t>(layout.size()));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto gradient = random_values(layout, random);
    std::ranges::copy(gradient, stage.replica(i).gradient.begin());
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += gradient[j];
  }
  stage.pass({step_number(0), Hook::gradient});
  EXPECT_TRUE(same_bits(stage.replica(1).gradient, sum));
}

TEST(PowerSgd, NonFiniteGradientReachesAllAndLeavesNoResidual) {
  std::mt19937_64 random(5);
  const Layout layout({{.name = "a", .shape = {30, 30}}});
  DirectRound stage(layout, 3, power_maker(2));
  const auto fill = [&] {
    for (std::size_t i = 0; i < 3; ++i) {
      std::ranges::copy(random_values(layout, random), stage.replica(i).gradient.begin());
    }
  };
  fill();
  stage.pass({step_number(0), Hook::gradient});
  const auto before = slots_of(stage.replica(0));
  fill();
  stage.replica(1).gradient[7] = std::nanf("");
  stage.pass({step_number(1), Hook::gradient});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(stage.replica(i).gradient[500]));
  const auto after = slots_of(stage.replica(0));
  for (std::size_t slot = 4; slot < after.size(); ++slot) {
    EXPECT_TRUE(same_bits(before[slot], after[slot]));
  }
}

TEST(PowerSgd, BalancesPartsOverOwners) {
  std::vector<PieceSpec> specs;
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::int64_t side : {1, 64, 192, 256}) {
      specs.push_back({fmt::format("{}.{}", layer, side), {side, 64}});
    }
  }
  for (std::size_t replicas = 2; replicas <= 8; ++replicas) {
    DirectRound stage(Layout(specs), replicas, power_maker(2));
    ASSERT_TRUE(stage.open({step_number(0), Hook::gradient}));
    stage.exchange();
    const auto [least, most] = std::ranges::minmax(stage.sent());
    EXPECT_LT(static_cast<double>(most), 1.2 * static_cast<double>(least)) << replicas;
  }
}

// The owner of a matrix makes the sum of the left factors orthonormal: here one replica sends it.
TEST(PowerSgd, OrthonormalisesAnyColumns) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal;
  for (int run = 0; run < 100; ++run) {
    const std::size_t rows = 6 + random() % 45;
    const std::size_t rank = 1 + random() % 5;
    std::vector<float> factor(rows * rank);
    for (float& value : factor) value = std::ldexp(normal(random), run % 40 - 20);
    // Columns that nearly equal others, or are zero.
    if (rank > 1) {
      for (std::size_t i = 0; i < rows; ++i)
        factor[rows + i] = 3 * factor[i] * (1 + 1e-3F * normal(random));
    }
    if (rank > 3) std::fill_n(factor.begin() + static_cast<std::ptrdiff_t>(3 * rows), rows, 0.0F);
    DirectRound stage(Layout({{.name = "a", .shape = {static_cast<std::int64_t>(rows), 64}}}), 1,
                      power_maker(static_cast<std::int64_t>(rank)));
    ASSERT_TRUE(stage.open({step_number(0), Hook::gradient}));
    const Round& round = stage.rounds()[0];
    const std::span<const std::byte> sent = std::as_bytes(std::span(factor));
    net::Frame result;
    stage.replica(0).method->reduce(round, round.parts[0], {&sent, 1}, stage.replica(0).slots,
                                    result);
    ASSERT_EQ(result.size(), sent.size());
    std::memcpy(factor.data(), result.data(), result.size());
    for (std::size_t a = 0; a < rank; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (std::size_t i = 0; i < rows; ++i) {
          product +=
              static_cast<double>(factor[a * rows + i]) * static_cast<double>(factor[b * rows + i]);
        }
        if (a == b && product < 0.5) {
          EXPECT_EQ(product, 0);  // it was linearly dependent
        } else {
          EXPECT_NEAR(product, a == b ? 1 : 0, 1e-5);
        }
      }
    }
  }
}

TEST(PowerSgd, RefusesSettingsOutOfRange) {
  SyncSettings settings = usual("powersgd");
  settings.rank = 0;
  EXPECT_THROW(make_method(settings), SyncError);
  settings.rank = 1 << 20;
  EXPECT_THROW(make_method(settings), SyncError);
}

TEST(PowerSgd, Converges) {
  std::mt19937_64 random(7);
  DirectRound stage(matrices(random), 4, power_maker(2));
  start_at_random(stage, random);
  Quadratic problem(stage, 7, {.learning_rate = 0.02F});
  for (std::int64_t step = 0; step < 2000; ++step) problem.step(step);
  EXPECT_LT(problem.distance(model_of(stage.replica(0))), 0.01);
}

}  // namespace
}  // namespace strait::sync
