#include "launcher/console/loss_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace strait::console {
namespace {

constexpr std::size_t kScale = 9;  // characters of a number and its bar
constexpr std::array<std::string_view, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::size_t kFull = kEighths.size() - 1;

// NaN: nothing finite fell into this column.
std::vector<double> column_means(std::span<const double> values, std::size_t columns) {
  const std::size_t used = std::min(columns, values.size());
  std::vector<double> means(used);
  for (std::size_t column = 0; column < used; ++column) {
    const std::size_t first = column * values.size() / used;
    const std::size_t last = (column + 1) * values.size() / used;
    double sum = 0;
    std::size_t count = 0;
    for (const double value : values.subspan(first, last - first)) {
      if (!std::isfinite(value)) continue;
      sum += value;
      ++count;
    }
    means[column] =
        count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  }
  return means;
}

}  // namespace

std::vector<std::string> loss_chart(std::span<const double> values, std::size_t columns,
                                    std::size_t rows) {
  if (values.empty() || rows == 0 || columns <= kScale) return {};
  const std::vector<double> means = column_means(values, columns - kScale);
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const double mean : means) {
    if (std::isnan(mean)) continue;
    least = std::min(least, mean);
    most = std::max(most, mean);
  }
  if (!std::isfinite(least)) return {};
  const double range = most > least ? most - least : 1;
  std::vector<std::string> lines;
  for (std::size_t row = rows; row-- > 0;) {
    const bool top = row + 1 == rows;
    const bool bottom = row == 0;
    std::string line =
        top || bottom ? fmt::format("{:>7.4g} │", top ? most : least) : fmt::format("{:>7} │", "");
    for (const double mean : means) {
      // At least one eighth of the lowest row: a column that is there is seen.
      const double height =
          std::isnan(mean) ? 0 : 1 + (mean - least) / range * static_cast<double>(rows * kFull - 1);
      const double above = height - static_cast<double>(row * kFull);
      line +=
          kEighths[static_cast<std::size_t>(std::clamp(above, 0.0, static_cast<double>(kFull)))];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace strait::console
