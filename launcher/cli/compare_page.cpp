#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "framework/trace/step_metrics.h"
#include "launcher/cli/html_page.h"
#include "launcher/cli/metric_text.h"
#include "launcher/cli/report.h"

namespace strait::cli {

using nlohmann::json;

std::string compare_page(const std::vector<std::pair<std::string, ReportData>>& runs, json table) {
  json progress = json::array();
  std::map<int, json> charts;  // by rank
  json evaluated = {{"title", "Evaluation loss"}, {"unit", "nats"}, {"curves", json::array()}};
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const auto& [name, data] = runs[run];
    progress.push_back(data.progress.figure("", ""));
    const auto add = [&, &name = name](json& figure, const ReportCurve& curve) {
      figure["curves"].push_back({{"name", name}, {"run", run}, {"points", curve.points()}});
    };
    trace::each_metric<trace::StepMetrics>([&, &data = data](const auto& one) {
      const auto curve = data.curves.find(one.info.key == nullptr ? "" : one.info.key);
      if (one.info.chart.rank == 0 || curve == data.curves.end()) return;
      json& figure = charts[one.info.chart.rank];
      figure["title"] = one.info.chart.title;
      figure["unit"] = unit_text(one.info.unit);
      add(figure, curve->second);
    });
    if (!data.evaluations.empty()) add(evaluated, data.evaluation_curve());
  }
  json figures = json::array();
  for (auto& [rank, figure] : charts) figures.push_back(std::move(figure));
  if (!evaluated["curves"].empty()) figures.insert(figures.begin(), std::move(evaluated));
  table["title"] = "Settings that differ, and results";
  json settings = json::array();
  settings.push_back(table);
  json all = json::array();
  all.push_back({{"title", table["title"]}, {"figures", std::move(settings)}});
  if (!figures.empty()) all.push_back({{"title", "Curves"}, {"figures", std::move(figures)}});
  std::vector<std::string> names;
  for (const auto& [name, data] : runs) names.push_back(name);
  return html_page(fmt::format("{}", fmt::join(names, ", ")), "", "",
                   {{"progress", progress.at(0)},
                    {"runs", progress},
                    {"marks", json::array()},
                    {"sections", std::move(all)}});
}

}  // namespace strait::cli
