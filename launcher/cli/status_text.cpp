#include "launcher/cli/status_text.h"

#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/cli/loss_chart.h"
#include "launcher/cli/metric_text.h"
#include "launcher/run/forecast_check.h"
#include "launcher/run/step_ledger.h"

namespace strait::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBarColumns = 30;
constexpr std::size_t kMostCurveColumns = 40;
constexpr std::size_t kMostChartRows = 8;

// The parts with a dot between them, in lines of this width; a part alone may be wider.
void add_folded(std::vector<std::string>& lines, const std::vector<std::string>& parts,
                std::size_t columns) {
  std::string line;
  for (const std::string& part : parts) {
    const std::string longer = line.empty() ? part : fmt::format("{} · {}", line, part);
    if (!line.empty() && base::columns_of(longer) > columns) {
      lines.push_back(std::exchange(line, part));
    } else {
      line = longer;
    }
  }
  if (!line.empty()) lines.push_back(line);
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

// The forecast of a step, and what the latest ones take.
std::vector<std::string> part_lines(const json& status, std::size_t columns) {
  constexpr std::size_t kMostParts = 6;
  auto parts = trace::read_metrics<run::PartSeconds>(status.value("parts", json::array()));
  if (parts.size() > kMostParts) parts.resize(kMostParts);
  for (run::PartSeconds& one : parts) one.part = base::printable(one.part);
  std::vector<std::string> lines = metric_table(parts, columns);
  if (lines.empty()) return {};
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

RunView view_of(const json& status) {
  RunView view{status.at("step").get<std::int64_t>(), status.at("steps").get<std::int64_t>()};
  const json& eta = status.at("eta_seconds");
  if (status.at("state") != "ended" && eta.is_number()) view.eta_seconds = eta.get<double>();
  const json& saved = status.at("checkpoint");
  if (saved.is_number_integer()) view.checkpoint = saved.get<std::int64_t>();
  for (const trace::Status where : {trace::Status::line, trace::Status::watch}) {
    std::ranges::move(metric_labels<trace::StepMetrics>(status, where),
                      std::back_inserter(view.labels));
  }
  return view;
}

std::vector<std::string> live_block(const RunView& view, std::size_t columns) {
  std::vector<std::string> lines;
  if (view.steps > 0) {
    std::vector<std::string> progress = {
        fmt::format("{}  step {}/{}",
                    progress_bar(view.step, view.steps, std::min(kMostBarColumns, columns / 4)),
                    view.step, view.steps)};
    if (view.eta_seconds) progress.push_back("ETA " + clock_text(*view.eta_seconds));
    if (view.checkpoint) progress.push_back(fmt::format("checkpoint at step {}", *view.checkpoint));
    add_folded(lines, progress, columns);
    std::vector<std::string> labels = view.labels;
    if (!labels.empty() && !view.losses.empty()) {
      labels[0] += " " + curve_of(view.losses, std::min(kMostCurveColumns, columns / 4));
    }
    add_folded(lines, labels, columns);
  }
  if (!view.doing.empty()) lines.push_back(view.doing);
  for (std::string& line : lines) line = base::cut_to_columns(base::printable(line), columns);
  return lines;
}

std::string in_tones(const std::string& line, bool colors) {
  const std::size_t bar = std::min(line.find("█"), line.find("░"));
  if (const std::size_t end = line.find(' '); bar == 0 && end != line.npos) {
    return base::painted(line.substr(0, end), base::Tone::good, colors) + line.substr(end);
  }
  using base::Tone;
  const auto has = [&](std::string_view text) { return line.find(text) != line.npos; };
  const bool lost = has("ended with code") || has("launcher is gone");
  const bool slow = line.starts_with("slow: ") || line.starts_with("nothing moves: ") ||
                    line.starts_with("restarts by itself") || has("did not rejoin: ") ||
                    (line.starts_with("replica ") && has(" left at step "));
  return base::painted(line,
                       lost && !has("ended with code 0") ? Tone::bad
                       : slow                            ? Tone::caution
                                                         : Tone::plain,
                       colors);
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
  if (const std::string early = outcome.value("early", ""); !early.empty() && cause.empty()) {
    return fmt::format("ended early after step {} of {}: {}", step, steps, early);
  }
  return fmt::format("ended with code {} ({}){}{}", outcome.at("code").get<int>(),
                     outcome.at("meaning").get<std::string>(), cause.empty() ? "" : ": ", cause);
}

std::vector<std::string> wrapped(const std::string& line, std::size_t columns, std::size_t indent) {
  std::vector<std::string> lines = {""};
  std::size_t used = 0;
  for (std::size_t begin = 0; begin < line.size();) {
    // A word with the blanks before it.
    const std::size_t word = std::min(line.find_first_not_of(' ', begin), line.size());
    const std::size_t end = std::min(line.find(' ', word), line.size());
    const std::string next = line.substr(begin, end - begin);
    const std::size_t width = base::columns_of(next);
    if (columns > 0 && used > 0 && used + width > columns) {
      lines.push_back(std::string(indent, ' ') + next.substr(word - begin));
      used = indent + width - (word - begin);
    } else {
      lines.back() += next;
      used += width;
    }
    begin = end;
  }
  return lines;
}

std::string folded_text(const std::string& text, std::size_t columns) {
  std::string folded;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = std::min(line.find("  ", first), line.size());
    const std::size_t second = std::min(line.find_first_not_of(' ', gap), line.size());
    const std::string_view word =
        std::string_view(line).substr(second).substr(0, line.find(' ', second) - second);
    const std::size_t indent = second < columns / 2  ? second
                               : first < columns / 4 ? first + 2
                                                     : std::min(first, columns / 2);
    for (const std::string& one : wrapped(line, word.ends_with("strait") ? 0 : columns, indent)) {
      folded += one + '\n';
    }
  }
  return folded;
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
  return {traffic_lines(status, columns), std::move(fitting), part_lines(status, columns)};
}

std::vector<std::string> watch_frame(const std::string& headline, const nlohmann::json& status,
                                     bool live, std::span<const double> losses, ScreenSize size) {
  std::vector<std::string> lines = {headline};
  std::ranges::move(live_block(view_of(status), size.columns), std::back_inserter(lines));
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
