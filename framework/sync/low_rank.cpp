#include "framework/sync/low_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace strait::sync {
namespace {

// A column that keeps less than this share of its length is the rounding error of those before it.
constexpr double kDependent = 1e-5;

void row_with_residual(const ResidualMatrix& matrix, std::size_t row, std::span<float> to) {
  const auto gradient = matrix.gradient.subspan(row * matrix.columns, matrix.columns);
  const auto residual = matrix.residual.subspan(row * matrix.columns, matrix.columns);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = gradient[i] + residual[i];
}

std::span<const float> column(std::span<const float> factor, std::size_t rank, std::size_t number) {
  const std::size_t length = factor.size() / rank;
  return factor.subspan(number * length, length);
}

// In sixteen sums that a compiler can keep in one register, added pairwise in a fixed order.
float lane_product(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kProductLanes = 16;
  std::array<float, kProductLanes> sums{};
  std::size_t i = 0;
  for (; i + kProductLanes <= a.size(); i += kProductLanes) {
    for (std::size_t lane = 0; lane < kProductLanes; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < a.size(); ++i, ++lane) sums[lane] += a[i] * b[i];
  for (std::size_t half = kProductLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// In double precision, because orthogonality is lost by cancellation.
double exact_product(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

void scale(std::span<float> values, double by) {
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) * by);
}

void subtract(std::span<const float> what, double times, std::span<float> from) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] =
        static_cast<float>(static_cast<double>(from[i]) - times * static_cast<double>(what[i]));
  }
}

}  // namespace

LowRankShape::LowRankShape(const PieceSpec& spec, std::size_t rank) {
  rows = spec.shape.empty() ? 1 : static_cast<std::size_t>(spec.shape.front());
  columns = 1;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) {
    columns *= static_cast<std::size_t>(spec.shape[i]);
  }
  exact = (rows + columns) * rank >= rows * columns;
  left = exact ? rows * columns : rows * rank;
  right = exact ? 0 : columns * rank;
}

std::vector<float> left_factor(const ResidualMatrix& matrix, std::span<const float> right,
                               std::size_t rank) {
  std::vector<float> left(matrix.rows * rank);
  std::vector<float> values(matrix.columns);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    row_with_residual(matrix, row, values);
    for (std::size_t k = 0; k < rank; ++k) {
      left[k * matrix.rows + row] = lane_product(values, column(right, rank, k));
    }
  }
  return left;
}

std::vector<float> right_factor(const ResidualMatrix& matrix, std::span<const float> left,
                                std::size_t rank) {
  std::vector<float> right(matrix.columns * rank);
  std::vector<float> values(matrix.columns);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    row_with_residual(matrix, row, values);
    for (std::size_t k = 0; k < rank; ++k) {
      const float weight = left[k * matrix.rows + row];
      // Row by row, so that the matrix is read in the order of memory.
      float* to = right.data() + k * matrix.columns;
      for (std::size_t i = 0; i < values.size(); ++i) to[i] += weight * values[i];
    }
  }
  return right;
}

void orthonormalise(std::span<float> factor, std::size_t rank) {
  if (!std::all_of(factor.begin(), factor.end(),
                   [](float value) { return std::isfinite(value); })) {
    std::fill(factor.begin(), factor.end(), std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const std::size_t length = factor.size() / rank;
  for (std::size_t k = 0; k < rank; ++k) {
    const std::span<float> own = factor.subspan(k * length, length);
    const double before = std::sqrt(exact_product(own, own));
    // Normalised first, so that kDependent compares with a length of one, and squares do not
    // overflow.
    if (before > 0) scale(own, 1 / before);
    // Twice, because rounding leaves a remainder the first time ("twice is enough").
    for (int time = 0; time < 2; ++time) {
      for (std::size_t ahead = 0; ahead < k; ++ahead) {
        const auto other = column(factor, rank, ahead);
        subtract(other, exact_product(other, own), own);
      }
    }
    const double left = std::sqrt(exact_product(own, own));
    scale(own, left > kDependent ? 1 / left : 0);
  }
}

void product_row(std::span<const float> left, std::span<const float> right, std::size_t rank,
                 std::size_t row, std::span<float> to) {
  std::fill(to.begin(), to.end(), 0.0F);
  for (std::size_t k = 0; k < rank; ++k) {
    const float weight = column(left, rank, k)[row];
    const auto from = column(right, rank, k);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += weight * from[i];
  }
}

}  // namespace strait::sync
