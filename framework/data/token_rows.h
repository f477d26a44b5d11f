#pragma once

#include <vector>

#include "framework/store/input_file.h"

namespace strait::data {

// Packed training rows, the content of a token file: three tables of rows() x row_length, row by
// row.
struct TokenRows {
  std::int64_t row_length = 0;
  std::vector<std::int32_t> input_ids;
  // 1: this token is to be predicted from the tokens before it
  std::vector<std::uint8_t> loss_mask;
  // The document's number in the row, never decreasing; -1: padding at the end.
  std::vector<std::int32_t> document;

  std::int64_t rows() const {
    return row_length == 0 ? 0 : static_cast<std::int64_t>(input_ids.size()) / row_length;
  }
  bool operator==(const TokenRows&) const = default;
};

// The same rows, in any memory.
struct RowTables {
  std::int64_t rows = 0;
  std::int64_t row_length = 0;
  std::span<const std::int32_t> input_ids{};
  std::span<const std::uint8_t> loss_mask{};          // empty: 1 everywhere
  std::span<const std::int32_t> document{};           // empty: 0 everywhere
  std::vector<std::shared_ptr<const void>> memory{};  // what the spans lie in
  std::vector<std::shared_ptr<const store::FileMapping>>
      mappings{};  // the mapped files among `memory`
};

}  // namespace strait::data
