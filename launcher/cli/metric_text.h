#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/trace/combine_metrics.h"
#include "framework/trace/metric.h"
#include "launcher/base/text.h"

// Metrics as text for people, according to their tables (framework/trace/metric.h): parts of the
// line of a step, and tables of a run. Pure.
namespace strait::cli {

// Titles of the tables of metrics.
inline constexpr const char* kBoundaryTraffic = "boundary traffic";
inline constexpr const char* kSyncTraffic = "traffic between replicas";

// "loss 0.412", "12.3k tok/s"; `whole`: without the prefix k or M.
std::string label_text(const trace::MetricInfo& metric, double value, bool whole = false);

// A duration: "0:41", "12:03", "3:07:00".
std::string clock_text(double seconds);

// Of the axis of a chart; empty: none, or said otherwise.
const char* unit_text(trace::Unit unit);

// "8.0 MB", "12 %", "-" if unknown.
std::string count_cell(trace::Unit unit, std::uint64_t value);
std::string number_cell(trace::Unit unit, const std::optional<double>& value);
template <class V>
std::string cell_text(trace::Unit unit, const V& value) {
  if constexpr (std::same_as<V, std::string>) {
    return value;
  } else if constexpr (std::same_as<V, std::uint64_t>) {
    return count_cell(unit, value);
  } else {
    return number_cell(unit, trace::as_number(value));
  }
}

// Whether one of these cells has a value.
inline bool is_known(const std::vector<std::string>& cells) {
  return std::ranges::any_of(cells, [](const std::string& cell) { return cell != "-"; });
}

// The labels of one step for a line, in the order of their ranks. `means`: only metrics combined by
// process; otherwise the others.
template <class S>
std::vector<std::string> step_labels(const S& step, bool means) {
  std::multimap<int, std::string> labels;
  trace::each_metric<S>([&](const auto& one) {
    const trace::MetricInfo& info = one.info;
    if (info.label.rank == 0 || (info.combine == trace::Combine::each) != means) return;
    const std::optional<double> value = trace::as_number(one.value(step));
    // A flag is shown if it is set, a speed if tokens were counted.
    const bool hides_zero = info.label.hides_zero || info.unit == trace::Unit::flag ||
                            info.unit == trace::Unit::tokens_per_second;
    if (!value || (hides_zero && !(std::abs(*value) > 0))) return;  // nor what is not a number
    labels.emplace(info.label.rank, label_text(info, *value));
  });
  std::vector<std::string> texts;
  for (auto& [rank, text] : labels) texts.push_back(std::move(text));
  return texts;
}

// A number, or the mean of those of all processes. Nullopt: one of them is not known.
std::optional<double> mean_of(const nlohmann::json& value);

// The same from status.json, for the metrics that are shown there.
template <class S>
std::vector<std::string> metric_labels(const nlohmann::json& status, trace::Status where) {
  std::vector<std::string> labels;
  trace::each_metric<S>([&](const auto& one) {
    if (one.info.status != where) return;
    const auto found = status.find(one.info.key);
    const std::optional<double> value = found == status.end() ? std::nullopt : mean_of(*found);
    if (!value || (one.info.label.hides_zero && *value == 0)) return;
    labels.push_back(label_text(one.info, *value, true));
  });
  return labels;
}

// A line of headings and one per row, of at most `columns` characters (base::table_lines), without
// columns in which no row has a value. Nothing without rows.
template <class S>
std::vector<std::string> metric_table(const std::vector<S>& rows, std::size_t columns = 0) {
  if (rows.empty()) return {};
  using Kind = base::TextColumn::Kind;
  std::vector<base::TextColumn> table;
  trace::each_metric<S>([&](const auto& one) {
    if (one.info.column == nullptr) return;
    base::TextColumn column{one.info.column, {}, Kind::number};
    if (one.info.unit == trace::Unit::name) column.kind = Kind::key;
    column.cells.reserve(rows.size());
    for (const S& row : rows) column.cells.push_back(cell_text(one.info.unit, one.value(row)));
    if (is_known(column.cells)) table.push_back(std::move(column));
  });
  return base::table_lines(table, columns);
}

// The title of the table of such totals: "boundary traffic, summed over steps 1 to 6; change,
// error, cached: of the last one".
template <class S>
std::string sums_title(const char* what, const trace::MetricTotals<S>& totals) {
  std::vector<std::string> latest;
  const std::vector<S> rows = totals.all();
  trace::each_metric<S>([&](const auto& one) {
    if (one.info.column == nullptr || one.info.combine != trace::Combine::latest) return;
    std::vector<std::string> cells;
    cells.reserve(rows.size());
    for (const S& row : rows) cells.push_back(cell_text(one.info.unit, one.value(row)));
    if (is_known(cells)) latest.emplace_back(one.info.column);
  });
  std::string title =
      fmt::format("{}, summed over steps {} to {}", what, totals.first(), totals.last());
  if (!latest.empty()) title += fmt::format("; {}: of the last one", fmt::join(latest, ", "));
  return title;
}

}  // namespace strait::cli
