#pragma once

#include "launcher/recipe/plan.h"

namespace strait::planner {

// What the parts of a pipeline do in a step, by the forecast: of the slowest replica.
struct PlanLoad {
  struct Stage {
    std::string host;
    std::string device_blocks;  // "12 blocks"
    double busy_seconds = 0;
  };
  // One direction between adjacent stages.
  struct Line {
    std::string from;
    std::string to;
    bool down = true;  // with activations; else with gradients
    double bytes_per_second = 0;
    double busy_seconds = 0;
  };
  // What a step takes longest for.
  struct Limit {
    // "compute of a", "the link from a to b", "the line of a", "sync of replicas"
    std::string name;
    double busy_seconds = 0;   // of a step
    double twice_seconds = 0;  // a step, if this part were twice as fast
  };

  std::uint32_t replica = 0;
  double step_seconds = 0;
  std::vector<Stage> stages;
  std::vector<Line> lines;  // between stage i and i + 1: down, then up
  Limit limit;
  double tokens = 0;  // of a step
  // The same rows on the fastest host alone; whether its memory holds them, where it is known.
  std::string fastest;
  double alone_seconds = 0;
  std::optional<bool> fits_alone = std::nullopt;
  double without_network_seconds = 0;  // a step, if links took no time
};

// Pure.
PlanLoad load_of(const plan::Plan& plan);

// What a step consists of, by the forecast, for the run to compare with: each process, link and
// wait.
std::vector<plan::StepPart> step_parts(const plan::Plan& plan);

// The layout of a whole plan, with what its step takes longest for.
plan::Layout layout_of(const plan::Plan& plan);

nlohmann::json to_json(const PlanLoad& load);

// The layout as a drawing, one line a stage or link, and what the load says, for at most 80
// columns. Long pipelines are drawn around the part that sets their step. Empty: a single process.
std::string load_text(const plan::Plan& plan);

}  // namespace strait::planner
