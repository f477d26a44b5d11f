#include "launcher/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace strait::base {

namespace {

// Longer names are not mistyped but something else; the bound also keeps the table small.
constexpr std::size_t kLongestName = 64;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cells((a.size() + 1) * width);
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      auto& cell = cells[i * width + j];
      if (i == 0 || j == 0) {
        cell = i + j;
        continue;
      }
      const bool equal = a[i - 1] == b[j - 1];
      cell = std::min({cells[(i - 1) * width + j] + 1, cells[i * width + j - 1] + 1,
                       cells[(i - 1) * width + j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cell = std::min(cell, cells[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return cells.back();
}

}  // namespace

std::string_view nearest_name(std::string_view written, std::span<const std::string_view> known) {
  if (written.size() > kLongestName) {
    return {};
  }
  std::string_view best;
  // A third of the letters may be wrong; with more, the proposal would be a guess.
  std::size_t best_distance = std::max<std::size_t>(written.size() / 3, 1) + 1;
  for (const auto name : known) {
    const auto distance = edit_distance(written, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace strait::base
