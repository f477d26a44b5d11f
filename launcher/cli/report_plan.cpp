#include "launcher/cli/report_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/base/text.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/speeds.h"

namespace strait::cli {
namespace {

std::string machine_lines(const plan::Plan& plan) {
  std::string lines;
  for (const plan::Plan::Host& host : plan.hosts) {
    lines += host.name;
    if (host.cores > 0) lines += ": " + base::counted(host.cores, "core");
    if (host.memory > 0) lines += ", " + base::byte_text(host.memory);
    for (const std::int64_t gpu : host.gpus.value_or(std::vector<std::int64_t>{})) {
      lines += ", GPU of " + base::byte_text(gpu);
    }
    if (host.processor) lines += ", " + *host.processor;
    lines += '\n';
  }
  return lines;
}

std::optional<double> known_speed(const plan::Plan& plan, net::ProcessName from,
                                  net::ProcessName to) {
  const plan::PathSpeed speed =
      plan::path_speed(plan, plan.process(from).host_index, plan.process(to).host_index);
  if (!speed.measured && !speed.stated) return std::nullopt;
  return speed.bytes_per_second;
}

std::string boundary_of(const plan::Plan::Link& link) {
  return link.name.substr(std::string_view("boundary ").size());
}

void add_speeds(const plan::Plan& plan, ReportPlan& report) {
  const auto keep_slowest = [&report](net::ProcessName sender, double speed) {
    const auto [slowest, added] = report.sync_speeds.emplace(sender.text(), speed);
    if (!added) slowest->second = std::min(slowest->second, speed);
  };
  for (const plan::Plan::Link& link : plan.links) {
    const std::optional<double> forward = known_speed(plan, link.connects, link.listens);
    const std::optional<double> backward = known_speed(plan, link.listens, link.connects);
    if (link.use == plan::Plan::Use::boundary) {
      const std::string name = boundary_of(link);
      if (forward) report.boundary_speeds[{name, "forward"}] = *forward;
      if (backward) report.boundary_speeds[{name, "backward"}] = *backward;
    } else if (link.use == plan::Plan::Use::replica) {
      if (forward) keep_slowest(link.connects, *forward);
      if (backward) keep_slowest(link.listens, *backward);
    }
  }
}

// In the order of pipelines: by replica, then by stage, of the first process of each.
void add_nodes(const plan::Plan& plan, ReportPlan& report,
               std::map<net::ProcessName, std::size_t>& node_of) {
  const bool by_host = plan.hosts.size() > 1;
  std::map<std::size_t, std::size_t> known;
  std::vector<std::vector<std::string>> contents;
  for (std::size_t i = 0; i < plan.processes.size(); ++i) {
    const plan::Plan::Process& process = plan.processes[i];
    const auto [at, added] = known.emplace(by_host ? process.host_index : i, known.size());
    node_of[process.name] = at->second;
    if (added) {
      report.nodes.push_back(
          {by_host ? process.host : process.name.text(), "", process.name.replica});
      contents.emplace_back();
    }
    contents[at->second].push_back(process.name.text());
  }
  for (std::size_t i = 0; i < report.nodes.size(); ++i) {
    constexpr std::size_t kMostNamed = 3;
    const std::size_t count = contents[i].size();
    report.nodes[i].content =
        !by_host ? plan.processes[i].host
        : count > kMostNamed
            ? fmt::format("{} stages", count)
            : fmt::format("stage{} {}", count == 1 ? "" : "s", fmt::join(contents[i], ", "));
  }
}

void add_map(const plan::Plan& plan, ReportPlan& report) {
  std::map<net::ProcessName, std::size_t> node_of;
  add_nodes(plan, report, node_of);
  std::map<std::string, std::size_t> peers;  // of processes that send to other replicas
  const auto add = [&](net::ProcessName from, net::ProcessName to, const std::string& name,
                       const char* direction) {
    const std::size_t sender = node_of.at(from);
    const std::size_t receiver = node_of.at(to);
    if (sender != receiver)
      report.paths.push_back({sender, receiver, name, direction, known_speed(plan, from, to)});
  };
  for (const plan::Plan::Link& link : plan.links) {
    if (link.use == plan::Plan::Use::boundary) {
      add(link.connects, link.listens, boundary_of(link), "forward");
      add(link.listens, link.connects, boundary_of(link), "backward");
    } else if (link.use == plan::Plan::Use::replica) {
      for (const auto& [from, to] :
           {std::pair(link.connects, link.listens), std::pair(link.listens, link.connects)}) {
        add(from, to, from.text(), "replicas");
        ++peers[from.text()];
      }
    }
  }
  for (ReportPlan::Path& path : report.paths) path.only_one = peers[path.name] < 2;
}

}  // namespace

ReportPlan report_plan(const plan::Plan& plan, std::string text, StepTimeline predicted) {
  ReportPlan report;
  report.run = plan.recipe.name;
  const recipe::Recipe::Pipeline& pipeline = plan.recipe.pipeline;
  std::filesystem::path model = std::filesystem::path(plan.recipe.model.path).lexically_normal();
  if (!model.has_filename()) model = model.parent_path();  // it was written with a slash at its end
  report.summary = fmt::format(
      "{}; {}, {}, {}", model.filename().string(), base::counted(pipeline.stages, "stage"),
      base::counted(pipeline.replicas, "replica"), base::counted(std::ssize(plan.hosts), "host"));
  report.text = std::move(text);
  report.recipe = plan::to_json(plan::without_secrets(plan)).at("recipe").dump(1);
  report.machines = machine_lines(plan);
  if (plan.recipe.model.dtype == recipe::Dtype::bfloat16) {
    report.raw_dtype = "bfloat16";
    report.raw_value_bytes = 2;
  }
  report.sync_method = plan.sync_method;
  const auto offer =
      std::ranges::find(plan.sync_offers, plan.sync_method, &plan::Plan::SyncOffer::method);
  if (offer != plan.sync_offers.end()) report.staleness = offer->staleness;
  for (const plan::Plan::Process& process : plan.processes) {
    const bool on_gpu = plan::computes_on_gpus(plan, process.host_index);
    report.memory_bytes[process.name.text()] =
        static_cast<double>(on_gpu ? plan.host_bytes(process) : plan.memory_bytes(process));
  }
  add_speeds(plan, report);
  add_map(plan, report);
  report.predicted = std::move(predicted);
  return report;
}

std::vector<LinkLoad> link_loads(const ReportPlan& plan,
                                 const std::vector<trace::BoundaryMetrics>& boundaries,
                                 const std::vector<trace::SyncMetrics>& sync) {
  std::vector<LinkLoad> loads;
  for (const trace::BoundaryMetrics& one : boundaries) {
    LinkLoad load{one.boundary, one.direction, static_cast<double>(one.sent_bytes),
                  static_cast<double>(one.raw_bytes) / sizeof(float) * plan.raw_value_bytes,
                  std::nullopt};
    const auto speed = plan.boundary_speeds.find({one.boundary, one.direction});
    if (speed != plan.boundary_speeds.end()) load.bytes_per_second = speed->second;
    loads.push_back(std::move(load));
  }
  for (const trace::SyncMetrics& one : sync) {
    LinkLoad load{one.process, "replicas", static_cast<double>(one.sent_bytes),
                  static_cast<double>(one.bfloat16_bytes), std::nullopt};
    const auto speed = plan.sync_speeds.find(one.process);
    if (speed != plan.sync_speeds.end()) load.bytes_per_second = speed->second;
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace strait::cli
