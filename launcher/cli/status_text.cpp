#include "launcher/cli/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/base/command_name.h"
#include "launcher/base/text.h"
#include "launcher/cli/metric_text.h"
#include "launcher/run/forecast_check.h"
#include "launcher/run/step_ledger.h"

namespace strait::cli {
namespace {

using nlohmann::json;

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

// The status of a run that still prepares has neither list.
std::vector<std::string> traffic_lines(const json& status, std::size_t columns) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const std::vector<std::string>& table) {
    if (table.empty()) return;
    lines.push_back(
        fmt::format("{} of step {} alone", what, status.at("step").get<std::int64_t>()));
    lines.insert(lines.end(), table.begin(), table.end());
  };
  const json none = json::array();
  add(kBoundaryTraffic,
      metric_table(trace::read_metrics<trace::BoundaryMetrics>(status.value("boundaries", none)),
                   columns));
  add(kSyncTraffic,
      metric_table(trace::read_metrics<trace::SyncMetrics>(status.value("sync", none)), columns));
  return lines;
}

// The forecast of a step beside what the latest ones take.
std::vector<std::string> part_lines(const json& status, std::size_t columns) {
  constexpr std::size_t kMostParts = 8;
  auto parts = trace::read_metrics<run::PartSeconds>(status.value("parts", json::array()));
  if (parts.size() > kMostParts) parts.resize(kMostParts);
  std::vector<std::string> lines = metric_table(parts, columns);
  if (!lines.empty())
    lines.insert(lines.begin(), "forecast of a step, and what the latest ones took");
  return lines;
}

std::vector<std::string> replica_lines(const json& status) {
  if (!status.contains("replicas")) return {};
  const auto active = status.at("replicas").get<std::vector<std::uint32_t>>();
  std::vector<std::string> lines = {fmt::format("active replicas: {}", fmt::join(active, ", "))};
  for (const auto& [replica, left] : status.at("left").items()) {
    const auto why = left.at("text").get<std::string>();
    lines.push_back(left.contains("step") ? fmt::format("replica {} left at step {}: {}", replica,
                                                        left.at("step").get<std::int64_t>(), why)
                                          : fmt::format("replica {} is absent: {}", replica, why));
  }
  const json rejoins = status.value("rejoins", json::object());
  for (const auto& [replica, one] : rejoins.items()) {
    const auto state = one.at("state").get<std::string>();
    if (state == "rejoining") lines.push_back(fmt::format("replica {} is rejoining", replica));
    if (state != "failed") continue;
    lines.push_back(
        fmt::format("replica {} did not rejoin: {}", replica, one.at("text").get<std::string>()));
  }
  return lines;
}

std::vector<std::string> restart_lines(const json& status) {
  const json restarts = status.value("restarts", json());
  if (!restarts.is_object()) return {};
  const json& last = restarts.at("last");
  std::vector<std::string> lines = {fmt::format(
      "restarts by itself: {}; the last to generation {} from step {}: {}",
      restarts.at("count").get<std::int64_t>(), last.at("generation").get<std::int64_t>(),
      last.at("from").get<std::int64_t>(), last.at("cause").get<std::string>())};
  for (const json& move : last.at("moves")) lines.push_back("  " + move.get<std::string>());
  return lines;
}

std::vector<std::string> process_lines(const json& status) {
  std::vector<std::string> lines;
  if (const json memory = status.value("memory", json()); memory.is_object()) {
    lines.push_back(fmt::format("checkpoint of step {} in memory of {}",
                                memory.at("step").get<std::int64_t>(),
                                memory.at("place").get<std::string>()));
  }
  for (const json& slow : status.value("slow", json::array())) {
    lines.push_back("slow: " + slow.get<std::string>());
  }
  if (const json why = status.value("standstill", json()); why.is_string()) {
    lines.push_back("nothing moves: " + why.get<std::string>());
  }
  for (const json& process : status.at("processes")) {
    std::string doing = process.value("waits_for", "");
    if (doing.empty()) doing = process.value("phase", "starting");
    lines.push_back(
        fmt::format("stage {} on {} (pid {}): step {}, {}; last heard {:.0f} s ago",
                    process.at("process").get<std::string>(), process.at("host").get<std::string>(),
                    process.at("pid").get<std::int64_t>(), process.value("step", std::int64_t{0}),
                    doing, process.at("silent_seconds").get<double>()));
  }
  return lines;
}

}  // namespace

std::string numbers_line(const json& status) {
  std::string line = fmt::format("step {}/{}", status.at("step").get<std::int64_t>(),
                                 status.at("steps").get<std::int64_t>());
  for (const std::string& label : metric_labels<trace::StepMetrics>(status, trace::Status::line)) {
    line += " · " + label;
  }
  if (status.at("state") != "ended" && status.at("eta_seconds").is_number()) {
    line += " · ETA " + clock_text(status.at("eta_seconds").get<double>());
  }
  if (status.at("checkpoint").is_number_integer()) {
    line += fmt::format(" · checkpoint at step {}", status.at("checkpoint").get<std::int64_t>());
  }
  return line;
}

std::string end_line(const std::string& run, const json& status) {
  const json& outcome = status.at("outcome");
  const auto step = status.at("step").get<std::int64_t>();
  const auto steps = status.at("steps").get<std::int64_t>();
  const auto cause = outcome.at("cause").get<std::string>();
  if (outcome.at("stopped").get<bool>() && cause.empty() && step < steps) {
    return fmt::format("stopped on request after step {} of {}; resume with: {}", step, steps,
                       base::strait_command("resume", run));
  }
  return fmt::format("ended with code {} ({}){}{}", outcome.at("code").get<int>(),
                     outcome.at("meaning").get<std::string>(), cause.empty() ? "" : ": ", cause);
}

std::vector<std::string> wrapped(const std::string& line, std::size_t columns) {
  constexpr std::string_view kFurther = "    ";
  std::vector<std::string> lines = {""};
  std::size_t used = 0;
  for (std::size_t begin = 0; begin < line.size();) {
    // A word with the blanks before it.
    const std::size_t word = std::min(line.find_first_not_of(' ', begin), line.size());
    const std::size_t end = std::min(line.find(' ', word), line.size());
    const std::string next = line.substr(begin, end - begin);
    const auto width = static_cast<std::size_t>(std::ranges::count_if(
        next, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    if (columns > 0 && used > 0 && used + width > columns) {
      lines.push_back(std::string(kFurther) + next.substr(word - begin));
      used = kFurther.size() + width - (word - begin);
    } else {
      lines.back() += next;
      used += width;
    }
    begin = end;
  }
  return lines;
}

std::vector<std::vector<std::string>> state_parts(const json& status, bool live,
                                                  std::size_t columns) {
  std::vector<std::string> state = restart_lines(status);
  if (live) {
    std::ranges::copy(replica_lines(status), std::back_inserter(state));
    std::ranges::copy(process_lines(status), std::back_inserter(state));
  }
  std::vector<std::string> fitting;
  for (const std::string& line : state) {
    std::ranges::move(wrapped(base::printable(line), columns), std::back_inserter(fitting));
  }
  return {traffic_lines(status, columns), part_lines(status, columns), std::move(fitting)};
}

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
      // At least one eighth of the lowest row, so that the lowest value is visible.
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

std::vector<std::string> watch_frame(const std::string& headline, const nlohmann::json& status,
                                     bool live, std::span<const double> losses, ScreenSize size) {
  std::vector<std::string> lines = {headline};
  std::string numbers = fmt::format(
      "{}  {}",
      progress_bar(status.at("step").get<std::int64_t>(), status.at("steps").get<std::int64_t>()),
      numbers_line(status));
  for (const std::string& label : metric_labels<trace::StepMetrics>(status, trace::Status::watch)) {
    numbers += " · " + label;
  }
  std::ranges::move(wrapped(numbers, size.columns), std::back_inserter(lines));
  const auto parts = state_parts(status, live, size.columns);
  // The chart gets the remaining rows; on a small screen the tables have priority.
  std::size_t taken = lines.size() + 3;
  for (const auto& part : parts) taken += part.size();
  const std::size_t chart_rows =
      std::min(kMostChartRows, size.rows > taken + 2 ? size.rows - taken : 0);
  add_part(lines, loss_chart(losses, size.columns, chart_rows));
  for (const auto& part : parts) add_part(lines, part);
  if (lines.size() > size.rows) {
    const std::size_t hidden = lines.size() - size.rows + 1;
    lines.resize(size.rows > 0 ? size.rows - 1 : 0);
    lines.push_back(fmt::format("… {} more lines", hidden));
    lines.resize(size.rows);
  }
  for (std::string& line : lines) line = base::cut_to_columns(base::printable(line), size.columns);
  return lines;
}

}  // namespace strait::cli
