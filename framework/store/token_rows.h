#pragma once

#include <cstdint>
#include <vector>

namespace strait::store {

// Packed training rows, the content of a token file: three tables of rows() x row_length, row after
// row.
struct TokenRows {
  std::int64_t row_length = 0;
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;  // 1: this token is to be predicted from those before it
  // Number inside the row, never falling; -1: padding at the end.
  std::vector<std::int32_t> document;

  std::int64_t rows() const {
    return row_length == 0 ? 0 : static_cast<std::int64_t>(input_ids.size()) / row_length;
  }
  bool operator==(const TokenRows&) const = default;
};

}  // namespace strait::store
