#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/sync/layout.h"

namespace strait::sync {

// How a tensor travels at a rank: as a matrix of its first dimension × all others, or exactly.
struct LowRankShape {
  LowRankShape(const PieceSpec& spec, std::size_t rank);
  std::size_t rows = 0;
  std::size_t columns = 0;
  bool exact = false;
  // Values that a replica contributes in exchange 0 and 1.
  std::size_t left = 0;
  std::size_t right = 0;
};

// A matrix row by row, as the sum of two vectors: a gradient and the residual of earlier ones.
struct ResidualMatrix {
  std::span<const float> gradient;
  std::span<const float> residual;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Factors lie column by column: `rank` columns one after the other. Every sum has a fixed order, so
// all machines compute the same bits.

// rows × rank: the matrix times `right` (columns × rank).
std::vector<float> left_factor(const ResidualMatrix& matrix, std::span<const float> right,
                               std::size_t rank);
// columns × rank: the matrix, transposed, times `left` (rows × rank).
std::vector<float> right_factor(const ResidualMatrix& matrix, std::span<const float> left,
                                std::size_t rank);

// Makes the columns orthogonal and of length one. A column that depends on those before it becomes
// zero. With a value that is not finite, all become NaN.
void orthonormalise(std::span<float> factor, std::size_t rank);

// A row of left × right transposed.
void product_row(std::span<const float> left, std::span<const float> right, std::size_t rank,
                 std::size_t row, std::span<float> to);

}  // namespace strait::sync
