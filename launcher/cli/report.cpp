#include "launcher/cli/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/trace/combine_metrics.h"
#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/cli/metric_text.h"

namespace strait::cli {
namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace

// These are members of Report::Parts, so they share its linkage.
struct ReportPoint {
  double step;
  double value;
};

// The values of one key over the steps. Beyond kMostRuns values, adjacent values are joined into
// runs of 2, 4, 8 and so on, whose lowest and highest values are drawn. So no peak is lost.
class ReportCurve {
 public:
  void add(const ReportPoint& point) {
    if (count_ == 0) first_ = lowest_ = highest_ = point;
    last_ = point;
    if (point.value < lowest_.value) lowest_ = point;
    if (point.value > highest_.value) highest_ = point;
    if (count_++ % run_length_ == 0) {
      if (runs_.size() == kMostRuns) join_neighbours();
      runs_.push_back({point, point});
    } else {
      runs_.back().add({point, point});
    }
  }

  std::string chart(const std::string& title) const {
    if (count_ == 0) return "";
    std::vector<std::string> points;
    points.reserve(runs_.size());
    for (const Run& run : runs_) {
      points.push_back(fmt::format("[{},{:.6g},{:.6g}]", std::min(run.low.step, run.high.step),
                                   run.low.value, run.high.value));
    }
    return fmt::format(
        "<h2>{0}</h2><figure data-title=\"{0} by step\" data-points=\"[{1}]\"><figcaption>from "
        "{2:.6g} (step {3}) to {4:.6g} (step {5}); lowest {6:.6g}, highest "
        "{7:.6g}</figcaption></figure>\n",
        title, fmt::join(points, ","), first_.value, first_.step, last_.value, last_.step,
        lowest_.value, highest_.value);
  }
  bool empty() const { return count_ == 0; }
  std::string change() const { return fmt::format("{:.4g} to {:.4g}", first_.value, last_.value); }

 private:
  static constexpr std::size_t kMostRuns = 2048;  // even; more than the page has pixels

  struct Run {
    ReportPoint low;
    ReportPoint high;
    void add(const Run& other) {
      if (other.low.value < low.value) low = other.low;
      if (other.high.value > high.value) high = other.high;
    }
  };

  // Called only when all runs are full.
  void join_neighbours() {
    for (std::size_t i = 0; i < kMostRuns / 2; ++i) {
      runs_[i] = runs_[2 * i];
      runs_[i].add(runs_[2 * i + 1]);
    }
    runs_.resize(kMostRuns / 2);
    run_length_ *= 2;
  }

  std::uint64_t count_ = 0;
  std::uint64_t run_length_ = 1;  // values in each run, except the last one
  std::vector<Run> runs_;
  ReportPoint first_{};
  ReportPoint last_{};
  ReportPoint lowest_{};
  ReportPoint highest_{};
};

// The rows of a list in every line, over the whole run.
template <class S>
class ReportTable {
 public:
  void add(const nlohmann::json& line, const char* list) {
    const auto rows = line.find(list);
    if (rows == line.end()) return;
    try {
      totals_.add(line.at("step").get<std::int64_t>(), trace::read_metrics<S>(*rows));
    } catch (const nlohmann::json::exception&) {
      // A line of another release, or a damaged one, is missing in the sums.
    }
  }

  std::string section(const char* what) const {
    const std::vector<std::string> table = metric_table(totals_.all());
    if (table.empty()) return "";
    std::string title = sums_title(what, totals_);
    title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
    return fmt::format("<h2>{}</h2>\n<pre>{}</pre>\n", title,
                       escaped(fmt::format("{}", fmt::join(table, "\n"))));
  }
  std::vector<S> totals() const { return totals_.all(); }

 private:
  trace::MetricTotals<S> totals_;
};

struct Report::Parts {
  std::map<std::string, ReportCurve> curves;  // by key
  std::map<double, double> evaluations;       // losses by step; a resume evaluates some again
  ReportTable<trace::BoundaryMetrics> boundaries;
  ReportTable<trace::SyncMetrics> sync;
  nlohmann::json last;
  double tokens = 0;
  double seconds = 0;
  double sent_bytes = 0;
  std::deque<std::string> restarts;  // the latest ones
  std::size_t restart_count = 0;
  std::string end;  // how the run ended

  std::string facts() const;
};

// What the run did, in a few numbers.
std::string Report::Parts::facts() const {
  std::string list;
  const auto add = [&list](const char* name, const std::string& value) {
    list += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
  };
  if (const auto loss = curves.find("loss"); loss != curves.end()) {
    add("loss", loss->second.change());
  }
  if (!evaluations.empty()) {
    add("evaluation loss", fmt::format("{:.4g}", evaluations.rbegin()->second));
  }
  if (seconds > 0) {
    add("time of the steps", clock_text(seconds));
    add("tokens", fmt::format("{:.0f}", tokens));
    add("tokens a second", fmt::format("{:.4g}", tokens / seconds));
    add("sent", base::byte_text(static_cast<std::uint64_t>(sent_bytes)));
  }
  std::uint64_t raw = 0;
  std::uint64_t encoded = 0;
  for (const trace::BoundaryMetrics& one : boundaries.totals()) {
    raw += one.raw_bytes;
    encoded += one.sent_bytes;
  }
  if (encoded > 0) {
    add("boundaries", fmt::format("{}, {:.1f} times less than float32", base::byte_text(encoded),
                                  trace::bytes_ratio(raw, encoded)));
  }
  return list.empty() ? "" : "<dl>" + list + "</dl>\n";
}

Report::Report() : parts_(std::make_unique<Parts>()) {}
Report::~Report() = default;

void Report::add(const nlohmann::json& line) {
  const auto step = line.is_object() ? line.find("step") : line.end();
  if (step == line.end() || !step->is_number()) return;
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    if (one.info.chart.rank == 0) return;
    const auto value = line.find(one.info.key);
    if (value == line.end() || !value->is_number()) return;
    parts_->curves[one.info.key].add({step->template get<double>(), value->template get<double>()});
  });
  const auto number = [&line](const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  parts_->tokens += number("tokens");
  parts_->seconds += number("seconds");
  for (const char* key : {"bytes_forward", "bytes_backward", "bytes_sync", "bytes_tied"}) {
    parts_->sent_bytes += number(key);
  }
  parts_->boundaries.add(line, "boundaries");
  parts_->sync.add(line, "sync");
  parts_->last = line;
}

void Report::add_event(const nlohmann::json& line) {
  constexpr std::size_t kShown = 50;
  const nlohmann::json event = line.is_object() ? line.value("event", nlohmann::json()) : line;
  if (event != "restart" && event != "ended" && event != "evaluated") return;
  const auto text = [&line](const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto number = [&line](const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  if (event == "evaluated") {
    const auto loss = line.find("loss");
    if (loss != line.end() && loss->is_number())
      parts_->evaluations[static_cast<double>(number("step"))] = loss->get<double>();
    return;
  }
  if (event == "ended") {
    const std::string cause = text("cause");
    parts_->end = fmt::format("Ended at step {}: {}{}", number("step"), text("meaning"),
                              cause.empty() ? "" : ". " + cause);
    return;
  }
  parts_->restarts.push_back(fmt::format("generation {} from step {}: {}", number("generation"),
                                         number("from"), text("cause")));
  ++parts_->restart_count;
  if (parts_->restarts.size() > kShown) parts_->restarts.pop_front();
}

std::string Report::page(const std::string& run, const std::string& plan_text) const {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head>"
      "<body>\n<h1>{0}</h1>\n<p>{2}</p>\n{3}<label>smoothing <input id=\"smooth\" type=\"range\" "
      "max=\"98\" value=\"0\"></label> <label><input id=\"log\" type=\"checkbox\"> logarithmic "
      "</label>\n",
      escaped(run), kReportStyle, escaped(parts_->end), parts_->facts());
  std::multimap<int, std::string> charts;  // in the order of their ranks
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    const trace::Chart& wanted = one.info.chart;
    if (wanted.rank == 0) return;
    charts.emplace(wanted.rank, parts_->curves[one.info.key].chart(wanted.title));
  });
  ReportCurve evaluated;
  for (const auto& [step, loss] : parts_->evaluations) evaluated.add({step, loss});
  page += evaluated.chart("Evaluation loss");
  for (const auto& [rank, chart] : charts) page += chart;
  page += parts_->boundaries.section(kBoundaryTraffic);
  page += parts_->sync.section(kSyncTraffic);
  if (parts_->restart_count > 0) {
    page += fmt::format("<h2>Restarts</h2>\n<p>{} by itself; the latest:</p>\n<pre>{}</pre>\n",
                        parts_->restart_count,
                        escaped(fmt::format("{}", fmt::join(parts_->restarts, "\n"))));
  }
  if (!parts_->last.is_null()) {
    const std::string last =
        parts_->last.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
    page += "<details><summary>Last step</summary><pre>" + escaped(last) + "</pre></details>\n";
  }
  return fmt::format(
      "{}<details><summary>Plan</summary><pre>{}</pre></details>\n<script>{}</script></body></html>"
      "\n",
      page, escaped(plan_text), kReportScript);
}

void write_report(const std::filesystem::path& run_directory, const std::string& run,
                  const std::string& plan_text) {
  Report report;
  std::ifstream stream(run_directory / base::kMetricsFile);
  for (std::string line; std::getline(stream, line);) {
    report.add(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
  }
  std::ifstream events(run_directory / base::kEventsFile);
  for (std::string line; std::getline(events, line);) {
    // Parsing all other lines would be wasted.
    constexpr std::array kShown = {"\"restart\"", "\"ended\"", "\"evaluated\""};
    if (std::ranges::none_of(
            kShown, [&](const char* name) { return line.find(name) != std::string::npos; })) {
      continue;
    }
    report.add_event(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
  }
  store::replace_file(run_directory / base::kReportFile, report.page(run, plan_text));
}

}  // namespace strait::cli
