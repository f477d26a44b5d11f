#include "launcher/cli/loss_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace strait::cli {
namespace {

constexpr std::size_t kScale = 9;  // characters of a number and its bar
constexpr std::array<std::string_view, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::size_t kFull = kEighths.size() - 1;

// NaN: no finite value fell into this column.
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

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double size() const { return most > least ? most - least : 1; }
};

Range range_of(const std::vector<double>& values) {
  Range range;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    range.least = std::min(range.least, value);
    range.most = std::max(range.most, value);
  }
  return range;
}

}  // namespace

std::string progress_bar(std::int64_t step, std::int64_t steps, std::size_t columns) {
  const double share =
      steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0) : 0;
  const auto full = static_cast<std::size_t>(share * static_cast<double>(columns));
  std::string bar;
  for (std::size_t i = 0; i < columns; ++i) bar += i < full ? "█" : "░";
  return fmt::format("{} {:3.0f} %", bar, 100 * share);
}

std::string curve_of(std::span<const double> values, std::size_t columns) {
  const std::vector<double> means = column_means(values, columns);
  const Range range = range_of(means);
  std::string curve;
  for (const double mean : means) {
    const double height = (mean - range.least) / range.size() * static_cast<double>(kFull - 1);
    curve += std::isnan(mean) ? kEighths[0] : kEighths[1 + static_cast<std::size_t>(height)];
  }
  return curve;
}

std::vector<std::string> loss_chart(std::span<const double> values, std::size_t columns,
                                    std::size_t rows) {
  if (values.empty() || rows == 0 || columns <= kScale) return {};
  const std::vector<double> means = column_means(values, columns - kScale);
  const Range range = range_of(means);
  if (!std::isfinite(range.least)) return {};
  std::vector<std::string> lines;
  for (std::size_t row = rows; row-- > 0;) {
    const bool top = row + 1 == rows;
    const bool bottom = row == 0;
    std::string line = top || bottom ? fmt::format("{:>7.4g} │", top ? range.most : range.least)
                                     : fmt::format("{:>7} │", "");
    for (const double mean : means) {
      // At least one eighth of the lowest row, so that the lowest value is visible.
      const double height = std::isnan(mean) ? 0
                                             : 1 + (mean - range.least) / range.size() *
                                                       static_cast<double>(rows * kFull - 1);
      const double above = height - static_cast<double>(row * kFull);
      line +=
          kEighths[static_cast<std::size_t>(std::clamp(above, 0.0, static_cast<double>(kFull)))];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace strait::cli
