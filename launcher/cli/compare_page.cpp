

#include "framework/trace/step_metrics.h"
#include "launcher/cli/html_page.h"
#include "launcher/cli/metric_text.h"
#include "launcher/cli/report.h"

namespace strait::cli {

std::string compare_page(const std::vector<std::pair<std::string, ReportData>>& runs,
                         nlohmann::json table) {
  nlohmann::json progress = nlohmann::json::array();
  std::map<int, nlohmann::json> charts;  // by rank
  nlohmann::json evaluated = {
      {"title", "Evaluation loss"}, {"unit", "nats"}, {"curves", nlohmann::json::array()}};
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const auto& [name, data] = runs[run];
    progress.push_back(data.progress.figure("", ""));
    const auto add = [&, &name = name](nlohmann::json& figure, const ReportCurve& curve) {
      figure["curves"].push_back({{"name", name}, {"run", run}, {"points", curve.points()}});
    };
    trace::each_metric<trace::StepMetrics>([&, &data = data](const auto& one) {
      const auto curve = data.curves.find(one.info.key == nullptr ? "" : one.info.key);
      if (one.info.chart.rank == 0 || curve == data.curves.end()) return;
      nlohmann::json& figure = charts[one.info.chart.rank];
      figure["title"] = one.info.chart.title;
      figure["unit"] = unit_text(one.info.unit);
      add(figure, curve->second);
    });
    if (!data.evaluations.empty()) add(evaluated, data.evaluation_curve());
  }
  nlohmann::json figures = nlohmann::json::array();
  for (auto& [rank, figure] : charts) figures.push_back(std::move(figure));
  if (!evaluated["curves"].empty()) figures.insert(figures.begin(), std::move(evaluated));
  table["title"] = "Settings that differ, and results";
  nlohmann::json settings = nlohmann::json::array();
  settings.push_back(table);
  nlohmann::json all = nlohmann::json::array();
  all.push_back({{"title", table["title"]}, {"figures", std::move(settings)}});
  if (!figures.empty()) all.push_back({{"title", "Curves"}, {"figures", std::move(figures)}});
  std::vector<std::string> names;
  names.reserve(runs.size());
  for (const auto& [name, data] : runs) names.push_back(name);
  return html_page(fmt::format("{}", fmt::join(names, ", ")), "", "",
                   {{"progress", progress.at(0)},
                    {"runs", progress},
                    {"marks", nlohmann::json::array()},
                    {"sections", std::move(all)}});
}

}  // namespace strait::cli
