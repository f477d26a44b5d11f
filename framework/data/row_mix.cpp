#include "framework/data/row_mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/mixed_bits.h"

namespace strait::data {
namespace {

// Draws `count` of the rows 0 .. rows - 1, and returns them in order.
std::vector<std::int64_t> drawn_rows(std::int64_t rows, std::int64_t count, std::uint64_t key) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  const auto rank = [key](std::int64_t row) {
    return mixed_bits(key + static_cast<std::uint64_t>(row));  // a bijection, so no two are equal
  };
  std::ranges::nth_element(all, all.begin() + count, {}, rank);
  all.resize(static_cast<std::size_t>(count));
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::string paths_of(const std::vector<DataFile>& files) {
  std::string text;
  for (const DataFile& file : files) text += (text.empty() ? "" : ", ") + file.path;
  return text;
}

std::vector<RowChoice> mix_rows(std::span<const MixedFile> files, std::uint64_t seed) {
  std::vector<RowChoice> chosen;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto [rows, weight] = files[i];
    const auto file = static_cast<std::int32_t>(i);
    const auto copies = static_cast<std::int64_t>(std::floor(weight));
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      for (std::int64_t row = 0; row < rows; ++row) chosen.push_back({file, row});
    }
    const double rest = weight - static_cast<double>(copies);
    const std::int64_t count = std::llround(rest * static_cast<double>(rows));
    const std::uint64_t key = mixed_bits(mixed_bits(seed) + i);
    for (const std::int64_t row : drawn_rows(rows, count, key)) chosen.push_back({file, row});
  }
  return chosen;
}

}  // namespace strait::data
