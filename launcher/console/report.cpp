#include "launcher/console/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/store/atomic_file.h"
#include "framework/trace/combine_metrics.h"
#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/console/metric_text.h"

namespace strait::console {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 220;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
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
        safe += letter;
    }
  }
  return safe;
}

struct Point {
  double step;
  double value;
};

// The values of one key over the steps; steps without a value are skipped.
std::vector<Point> series(const std::vector<nlohmann::json>& metrics, const char* key) {
  std::vector<Point> points;
  for (const nlohmann::json& line : metrics) {
    const auto value = line.find(key);
    if (value == line.end() || !value->is_number()) continue;
    points.push_back({line.at("step").get<double>(), value->get<double>()});
  }
  return points;
}

std::string chart(const std::string& title, const std::vector<Point>& points) {
  if (points.empty()) return "";
  double top = points.front().value;
  double bottom = top;
  for (const Point& point : points) {
    top = std::max(top, point.value);
    bottom = std::min(bottom, point.value);
  }
  const double height = top > bottom ? top - bottom : 1;
  const double first = points.front().step;
  const double width = std::max(points.back().step - first, 1.0);
  std::string path;
  for (const Point& point : points) {
    path += fmt::format("{:.1f},{:.1f} ", (point.step - first) / width * kWidth,
                        kHeight - (point.value - bottom) / height * kHeight);
  }
  return fmt::format(
      "<h2>{0}</h2><svg viewBox=\"-4 -4 {1} {2}\"><polyline fill=\"none\" stroke=\"#2563eb\" "
      "stroke-width=\"1.5\" points=\"{3}\"/></svg><p>from {4:.6g} (step {5}) to {6:.6g} (step "
      "{7}); "
      "lowest {8:.6g}, highest {9:.6g}</p>\n",
      title, kWidth + 8, kHeight + 8, path, points.front().value, points.front().step,
      points.back().value, points.back().step, bottom, top);
}

// The rows of a list in every line, over the whole run.
template <class S>
std::string table_section(const std::vector<nlohmann::json>& metrics, const char* list,
                          const char* title) {
  trace::MetricTotals<S> totals;
  for (const nlohmann::json& line : metrics) {
    totals.add(trace::read_metrics<S>(line.value(list, nlohmann::json::array())));
  }
  const std::vector<std::string> table = metric_table(totals.all());
  if (table.empty()) return "";
  return fmt::format("<h2>{}</h2>\n<pre>{}</pre>\n", title,
                     escaped(fmt::format("{}", fmt::join(table, "\n"))));
}

// A curve for every metric that has one, in the order of their ranks.
std::string charts(const std::vector<nlohmann::json>& metrics) {
  std::multimap<int, std::string> curves;
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    const trace::Chart& wanted = one.info.chart;
    if (wanted.rank > 0) {
      curves.emplace(wanted.rank, chart(wanted.title, series(metrics, one.info.key)));
    }
  });
  std::string page;
  for (const auto& [rank, curve] : curves) page += curve;
  return page;
}

}  // namespace

std::string report_page(const std::string& run, const std::string& plan_text,
                        const std::vector<nlohmann::json>& metrics) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>"
      "body{{font:15px/1.5 sans-serif;max-width:880px;margin:2em auto;padding:0 1em}}"
      "pre{{background:#f4f4f5;padding:1em;overflow-x:auto}}svg{{background:#fafafa}}</style></"
      "head>"
      "<body>\n<h1>{0}</h1>\n<pre>{1}</pre>\n",
      escaped(run), escaped(plan_text));
  page += charts(metrics);
  page += table_section<trace::BoundaryMetrics>(metrics, "boundaries", "Boundary traffic");
  page += table_section<trace::SyncMetrics>(metrics, "sync", "Traffic between replicas");
  if (!metrics.empty()) {
    page += "<h2>Last step</h2>\n<pre>" + escaped(metrics.back().dump(1)) + "</pre>\n";
  }
  return page + "</body></html>\n";
}

void write_report(const std::filesystem::path& run_directory, const std::string& run,
                  const std::string& plan_text) {
  std::vector<nlohmann::json> metrics;
  std::ifstream stream(run_directory / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object() && parsed.contains("step")) metrics.push_back(std::move(parsed));
  }
  store::replace_file(run_directory / "report.html", report_page(run, plan_text, metrics));
}

}  // namespace strait::console
