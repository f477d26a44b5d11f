#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/coding/lane_coder.h"
#include "framework/coding/symbol_model.h"

namespace strait::coding {

// Adaptive models of rows of levels, whole numbers that are small most of the time. Both ends begin
// with the same expected sizes and count the same levels. The context of a level is the size to be
// expected of it: that of its column in the rows before, corrected by how large the row's last
// levels were beside theirs. So columns and rows may differ in size by any factor.
class LevelModels {
 public:
  static constexpr std::int32_t kMost = 1 << 14;  // the largest size of a level
  static constexpr std::uint32_t kOne = 64;       // the size 1 in `sizes`

  // The initial sizes of the columns.
  LevelModels(std::vector<std::uint32_t> sizes, SymbolModel::End end);

  // A row of a level for each column, of at most kMost.
  void put(LaneWriter& writer, std::span<const std::int32_t> row);
  // Any bytes are some levels within kMost.
  void take(LaneReader& reader, std::span<std::int32_t> row);

 private:
  SymbolModel& model_of(std::size_t column);
  void learn(std::size_t column, std::int32_t level);

  std::vector<SymbolModel> models_;   // by context
  std::vector<std::uint32_t> sizes_;  // a moving average of each column
  // of the row's last levels: what they were, and what was expected of them
  std::uint32_t seen_ = 0;
  std::uint32_t expected_ = 0;
};

}  // namespace strait::coding
