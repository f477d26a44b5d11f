#pragma once

#include <vector>

#include "framework/store/sample.h"

namespace strait::codec {

// One row of a tensor in a message: its sample and the lengths of its documents. What follows the
// last document is padding: it is not sent, and is decoded as zeros.
struct Row {
  store::SampleId sample{};
  std::vector<std::int64_t> documents;

  std::int64_t length() const {
    std::int64_t sum = 0;
    for (const std::int64_t document : documents) sum += document;
    return sum;
  }
  bool operator==(const Row&) const = default;
};

// The rows of one tensor [rows, padded_length, width].
struct Rows {
  std::int64_t padded_length = 0;
  std::vector<Row> rows;

  std::int64_t size() const { return static_cast<std::int64_t>(rows.size()); }
  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const Row& row : rows) sum += row.length();
    return sum;
  }
  bool operator==(const Rows&) const = default;
};

}  // namespace strait::codec
