#include "launcher/console/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/console/metric_text.h"
#include "launcher/control/remaining_time.h"

namespace strait::console {

using nlohmann::json;

std::string numbers_line(const json& status) {
  std::string line = fmt::format("step {}/{}", status.at("step").get<std::int64_t>(),
                                 status.at("steps").get<std::int64_t>());
  for (const std::string& label : metric_labels<trace::StepMetrics>(status, trace::Status::line)) {
    line += " · " + label;
  }
  if (status.at("state") != "ended" && status.at("eta_seconds").is_number()) {
    line += " · ETA " + control::clock_text(status.at("eta_seconds").get<double>());
  }
  if (status.at("checkpoint").is_number()) {
    line += fmt::format(" · checkpoint at step {}", status.at("checkpoint").get<std::int64_t>());
  }
  return line;
}

// A status of an earlier build may lack both lists.
std::vector<std::string> traffic_lines(const json& status) {
  const json none = json::array();
  std::vector<std::string> lines =
      metric_table(trace::read_metrics<trace::BoundaryMetrics>(status.value("boundaries", none)));
  const std::vector<std::string> sync =
      metric_table(trace::read_metrics<trace::SyncMetrics>(status.value("sync", none)));
  lines.insert(lines.end(), sync.begin(), sync.end());
  return lines;
}

std::vector<std::string> replica_lines(const json& status) {
  if (!status.contains("replicas")) return {};
  const auto there = status.at("replicas").get<std::vector<std::uint32_t>>();
  std::vector<std::string> lines = {
      fmt::format("{} {} part: {}", there.size() == 1 ? "one replica" : "replicas",
                  there.size() == 1 ? "takes" : "take", fmt::join(there, ", "))};
  for (const auto& [replica, left] : status.at("left").items()) {
    const auto why = left.at("text").get<std::string>();
    lines.push_back(left.contains("step")
                        ? fmt::format("replica {} left at step {}: {}", replica,
                                      left.at("step").get<std::int64_t>(), why)
                        : fmt::format("replica {} takes no part: {}", replica, why));
  }
  const json returns = status.value("returns", json::object());
  for (const auto& [replica, one] : returns.items()) {
    const auto state = one.at("state").get<std::string>();
    if (state == "comes") lines.push_back(fmt::format("replica {} is coming back", replica));
    if (state != "failed") continue;
    lines.push_back(fmt::format("replica {} did not come back: {}", replica,
                                one.at("text").get<std::string>()));
  }
  return lines;
}

std::vector<std::string> process_lines(const json& status) {
  std::vector<std::string> lines;
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

}  // namespace strait::console
