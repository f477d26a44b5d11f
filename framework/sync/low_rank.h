#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace strait::sync {

// A matrix row by row, as the sum of two vectors: a gradient and what is owed of earlier ones.
struct OwedMatrix {
  std::span<const float> gradient;
  std::span<const float> owed;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Factors lie column by column: `rank` columns one behind the other. Every sum has one order, so
// all machines come to the same bits.

// rows × rank: the matrix times `right` (columns × rank).
std::vector<float> left_factor(const OwedMatrix& matrix, std::span<const float> right,
                               std::size_t rank);
// columns × rank: the matrix, transposed, times `left` (rows × rank).
std::vector<float> right_factor(const OwedMatrix& matrix, std::span<const float> left,
                                std::size_t rank);
// The columns become orthogonal and of length one; a column that depends on those ahead of it, and
// so adds nothing, becomes zero. Where a value is not finite all become NaN.
void orthonormalise(std::span<float> factor, std::size_t rank);
// A row of left × right transposed.
void product_row(std::span<const float> left, std::span<const float> right, std::size_t rank,
                 std::size_t row, std::span<float> to);

}  // namespace strait::sync
