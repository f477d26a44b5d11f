#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/store/file_mapping.h"

namespace strait::data {

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

// The same wherever it is in memory.
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
