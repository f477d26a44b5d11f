#pragma once

#include <cstdint>

namespace strait::kernels {

// How a frozen matrix is stored. int8, int4: as rows of groups of 64 values (QUANTIZED.md), rounded
// to nearest; int4 groups are rotated where that helps. nf4: in blocks of 64 consecutive values,
// across rows (nf4.h).
enum class MatrixFormat : std::uint8_t { int8, int4, nf4 };

// The shape of a stored matrix, [rows, columns].
struct QuantizedShape {
  MatrixFormat format = MatrixFormat::nf4;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  std::int64_t values() const { return rows * columns; }
};

}  // namespace strait::kernels
