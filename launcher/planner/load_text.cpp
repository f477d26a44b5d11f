#include <fmt/format.h>

#include "launcher/base/text.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_text.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {
namespace {

// Of a longer pipeline only the neighbours of the part that sets its step are drawn.
constexpr std::size_t kDrawnStages = 10;
constexpr std::size_t kNeighbours = 2;
constexpr double kBar = 24;  // characters

std::string percent(double part, double whole) {
  return fmt::format("{:.0f} %", 100 * part / whole);
}

std::string bar(double part, double whole) {
  const auto full = static_cast<std::size_t>(std::lround(kBar * std::min(part / whole, 1.0)));
  return std::string(full, '#') + std::string(static_cast<std::size_t>(kBar) - full, '.');
}

// The stage at which the busiest part begins.
std::size_t busiest_stage(const PlanLoad& load) {
  const auto stage = std::ranges::max_element(load.stages, {}, &PlanLoad::Stage::busy_seconds);
  const auto line = std::ranges::max_element(load.lines, {}, &PlanLoad::Line::busy_seconds);
  if (line == load.lines.end() || line->busy_seconds <= stage->busy_seconds) {
    return static_cast<std::size_t>(stage - load.stages.begin());
  }
  return static_cast<std::size_t>(line - load.lines.begin()) / 2;
}

std::string drawing(const PlanLoad& load) {
  std::size_t first = 0;
  std::size_t end = load.stages.size();
  if (end > kDrawnStages) {
    const std::size_t busiest = busiest_stage(load);
    first = busiest > kNeighbours ? busiest - kNeighbours : 0;
    end = std::min(end, busiest + kNeighbours + 2);
  }
  std::size_t width = 0;
  for (std::size_t i = first; i < end; ++i) width = std::max(width, load.stages[i].host.size());
  width = std::min<std::size_t>(width, 24);
  std::string text = first == 0
                         ? ""
                         : fmt::format("  ... {} before\n",
                                       base::counted(static_cast<std::int64_t>(first), "stage"));
  for (std::size_t i = first; i < end; ++i) {
    const PlanLoad::Stage& stage = load.stages[i];
    text += fmt::format("  {:<{}.{}}  {:>9}  {}  {:>5} busy, {:>5} idle\n", stage.host, width,
                        width, stage.device_blocks, bar(stage.busy_seconds, load.step_seconds),
                        percent(stage.busy_seconds, load.step_seconds),
                        percent(load.step_seconds - stage.busy_seconds, load.step_seconds));
    if (i + 1 == load.stages.size()) continue;
    const PlanLoad::Line& down = load.lines[2 * i];
    const PlanLoad::Line& up = load.lines[2 * i + 1];
    text += fmt::format(
        "  {:<{}}  down {} of {}, up {} of {}\n", "|", width,
        percent(down.busy_seconds, load.step_seconds), plan::text_of_rate(down.bytes_per_second),
        percent(up.busy_seconds, load.step_seconds), plan::text_of_rate(up.bytes_per_second));
  }
  if (end < load.stages.size()) {
    text +=
        fmt::format("  ... {} after\n",
                    base::counted(static_cast<std::int64_t>(load.stages.size() - end), "stage"));
  }
  return text;
}

}  // namespace

std::string load_text(const plan::Plan& plan) {
  if (plan.processes.size() < 2) return "";
  const PlanLoad load = load_of(plan);
  const auto seconds = [&](double value) { return forecast_seconds(plan, value); };
  std::string text = fmt::format("\nreplica {}{}, how busy in a step:\n", load.replica,
                                 plan.recipe.pipeline.replicas > 1 ? " (the slowest)" : "");
  text += drawing(load);
  text += fmt::format("  {} takes longest, {} of a step", load.limit.name,
                      seconds(load.limit.busy_seconds));
  // Assumed speeds have one digit, in which the two may be equal.
  const std::string twice = seconds(load.limit.twice_seconds);
  const std::string now = seconds(load.step_seconds);
  if (twice != now)
    text += fmt::format(";\n  with twice of it a step takes {}, not {}", twice, now);
  text += "\n";
  const auto tokens = [&](double step) { return forecast_number(plan, load.tokens / step); };
  text += fmt::format("  {} tokens/s\n  {} tokens/s on {} alone{}\n", tokens(load.step_seconds),
                      tokens(load.alone_seconds), load.fastest,
                      load.fits_alone.value_or(true) ? "" : ", which has not the memory for it");
  text += fmt::format("  {} tokens/s with links that take no time\n",
                      tokens(load.without_network_seconds));
  return text;
}

}  // namespace strait::planner
