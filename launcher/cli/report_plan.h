#pragma once

#include "framework/trace/traffic_metrics.h"
#include "launcher/cli/step_timeline.h"
#include "launcher/recipe/plan.h"

namespace strait::cli {

// What the report says of the plan of a run, without what may be secret.
struct ReportPlan {
  std::string run;
  std::string summary;                // "tiny-gpt2; 2 stages, 1 replica, 1 host"
  std::string text;                   // as `strait plan` prints it
  std::string recipe;                 // as JSON
  std::string machines;               // a line per host
  std::string raw_dtype = "float32";  // of uncompressed activations and gradients
  double raw_value_bytes = 4;
  std::string sync_method;                     // empty: one replica
  std::optional<double> staleness;             // of that method, steps
  std::map<std::string, double> memory_bytes;  // by process ("1.0"), forecast
  // Bytes per second, where they are measured, simulated or stated: of boundaries by name and
  // direction, of the slowest link to other replicas by process.
  std::map<std::pair<std::string, std::string>, double> boundary_speeds;
  std::map<std::string, double> sync_speeds;
  StepTimeline predicted;
  // The map: hosts in the order of their first stages, or the processes of a single host; and what
  // crosses between two of them, of which a load (LinkLoad) has the same name and direction.
  struct Node {
    std::string name;
    std::string content;  // "stages 0.0, 1.0"
    std::uint32_t replica = 0;
  };
  struct Path {
    std::size_t from = 0;  // of `nodes`
    std::size_t to = 0;
    std::string name;
    std::string direction;
    std::optional<double> bytes_per_second;  // nullopt: unknown
    bool only_one = true;                    // that carries this load
  };
  std::vector<Node> nodes;
  std::vector<Path> paths;
};
// `text` and `predicted`: of the planner, which links libtorch.
ReportPlan report_plan(const plan::Plan& plan, std::string text, StepTimeline predicted);

// What crossed a link in a run, compared with what no compression would have sent: activations and
// gradients in the run's own type, and for replicas a bfloat16 all-reduce in each step.
struct LinkLoad {
  std::string link;       // "0.0>1.0", or the process that sends to other replicas
  std::string direction;  // "forward", "backward", "replicas"
  double sent_bytes = 0;
  double raw_bytes = 0;
  std::optional<double> bytes_per_second;  // nullopt: the speed of the link is unknown
};
std::vector<LinkLoad> link_loads(const ReportPlan& plan,
                                 const std::vector<trace::BoundaryMetrics>& boundaries,
                                 const std::vector<trace::SyncMetrics>& sync);

}  // namespace strait::cli
