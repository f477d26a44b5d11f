#include "stages/muon.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/random.h"

namespace strait::stages {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix transposed(const Matrix& a) {
  Matrix b(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) b[j][i] = a[i][j];
  }
  return b;
}

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

// By the polynomial of Jordan et al., in double and without a transposition.
Matrix newton_schulz(Matrix x) {
  double squares = 0;
  for (const auto& row : x) {
    for (const double value : row) squares += value * value;
  }
  for (auto& row : x) {
    for (double& value : row) value /= std::sqrt(squares);
  }
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = times(x, transposed(x));
    const Matrix cubic = times(gram, x);
    const Matrix quintic = times(gram, cubic);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < x[0].size(); ++j) {
        x[i][j] = 3.4445 * x[i][j] - 4.7750 * cubic[i][j] + 2.0315 * quintic[i][j];
      }
    }
  }
  return x;
}

TEST(Muon, UpdatesByTheFormulas) {
  constexpr double kRate = 0.02;
  constexpr double kDecay = 0.3;
  for (const auto& [rows, columns] : {std::pair{3, 7}, {7, 3}, {5, 5}, {1, 6}}) {
    at::Generator generator = kernels::keyed_generator(7, at::kCPU);
    const at::Tensor weights = at::randn({rows, columns}, generator);
    const at::Tensor momentum = at::zeros({rows, columns});
    Matrix expected(rows, std::vector<double>(columns));
    Matrix mean = expected;
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) expected[i][j] = weights[i][j].item<double>();
    }
    for (int step = 0; step < 4; ++step) {
      const at::Tensor gradient = at::randn({rows, columns}, generator).mul_(1e-3);
      muon_update(weights, gradient, momentum, kRate, kDecay);
      Matrix ahead = mean;
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          const double own = gradient[i][j].item<double>();
          mean[i][j] = 0.95 * mean[i][j] + 0.05 * own;
          ahead[i][j] = 0.05 * own + 0.95 * mean[i][j];
        }
      }
      const Matrix change = newton_schulz(ahead);
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          expected[i][j] *= 1 - kRate * kDecay;
          expected[i][j] -= kRate * 0.2 * std::sqrt(std::max(rows, columns)) * change[i][j];
          EXPECT_NEAR(weights[i][j].item<double>(), expected[i][j], 1e-5)
              << rows << " x " << columns << ", step " << step;
        }
      }
    }
  }
}

TEST(Muon, KeepsWeightsWithoutGradient) {
  const at::Tensor weights = at::ones({3, 4});
  muon_update(weights, at::zeros({3, 4}), at::zeros({3, 4}), 0.1, 0);
  EXPECT_TRUE(at::equal(weights, at::ones({3, 4})));
}

}  // namespace
}  // namespace strait::stages
