#include "launcher/console/watch_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "framework/trace/step_metrics.h"
#include "launcher/base/text.h"
#include "launcher/console/loss_chart.h"
#include "launcher/console/metric_text.h"
#include "launcher/console/status_text.h"

namespace strait::console {
namespace {

constexpr std::size_t kBarColumns = 30;
constexpr std::size_t kMostChartRows = 8;

std::string progress_bar(std::int64_t step, std::int64_t steps) {
  const double share =
      steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0) : 0;
  const auto full = static_cast<std::size_t>(share * kBarColumns);
  std::string bar;
  for (std::size_t i = 0; i < kBarColumns; ++i) bar += i < full ? "█" : "░";
  return fmt::format("{} {:3.0f} %", bar, 100 * share);
}

void add_part(std::vector<std::string>& lines, const std::vector<std::string>& part) {
  if (part.empty()) return;
  lines.emplace_back();
  lines.insert(lines.end(), part.begin(), part.end());
}

}  // namespace

std::vector<std::string> watch_frame(const std::string& headline, const nlohmann::json& status,
                                     std::span<const double> losses, ScreenSize size) {
  std::vector<std::string> lines = {headline};
  std::string numbers = fmt::format(
      "{}  {}",
      progress_bar(status.at("step").get<std::int64_t>(), status.at("steps").get<std::int64_t>()),
      numbers_line(status));
  for (const std::string& label : metric_labels<trace::StepMetrics>(status, trace::Status::watch)) {
    numbers += " · " + label;
  }
  lines.push_back(std::move(numbers));
  const std::vector<std::string> traffic = traffic_lines(status);
  const std::vector<std::string> processes = process_lines(status);
  // The chart takes what is left, and gives way to the tables on a small screen.
  const std::size_t taken = lines.size() + traffic.size() + processes.size() + 3;
  const std::size_t chart_rows =
      std::min(kMostChartRows, size.rows > taken + 2 ? size.rows - taken : 0);
  add_part(lines, loss_chart(losses, size.columns, chart_rows));
  add_part(lines, traffic);
  add_part(lines, processes);
  if (lines.size() > size.rows) {
    const std::size_t hidden = lines.size() - size.rows + 1;
    lines.resize(size.rows > 0 ? size.rows - 1 : 0);
    lines.push_back(fmt::format("… {} more lines", hidden));
    lines.resize(size.rows);
  }
  for (std::string& line : lines) line = base::cut_to_columns(base::printable(line), size.columns);
  return lines;
}

}  // namespace strait::console
