#include "launcher/app/closing_lines.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "framework/store/checkpoint.h"
#include "launcher/base/errors.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

// A run that has ended in numbers that are not finite is not to be repeated as it was.
constexpr double kLowerRate = 0.1;

std::string with_lower_rate(const plan::Plan& plan) {
  return fmt::format(" --set train.learning_rate={:.3g}",
                     plan.recipe.train.learning_rate * kLowerRate);
}

// Updates that are not finite are not made, so the newest checkpoint is sound; the one before it is
// further from where the loss broke.
std::vector<std::string> lines_after_failure(const fs::path& run, const plan::Plan& plan,
                                             base::ExitCode code) {
  const std::vector<store::Step> saved = store::committed_steps(run);  // the newest first
  const std::string change = code == base::ExitCode::numeric ? with_lower_rate(plan) : "";
  if (saved.empty()) {
    return {fmt::format("again     ./strait run {} --replace{}   (there is no checkpoint)",
                        (run / "recipe.toml").string(), change)};
  }
  std::vector<std::string> lines = {fmt::format("resume    ./strait resume {}{}   (from step {})",
                                                run.string(), change, number(saved.front()))};
  if (code == base::ExitCode::numeric && saved.size() > 1) {
    lines.push_back(fmt::format("or        ./strait resume {} --from {}{}", run.string(),
                                number(saved[1]), change));
  }
  return lines;
}

}  // namespace

std::vector<std::string> closing_lines(const fs::path& run, const plan::Plan& plan,
                                       const control::Outcome& outcome) {
  if (outcome.code != base::ExitCode::done) return lines_after_failure(run, plan, outcome.code);
  const std::string name = run.string();
  std::vector<std::string> lines = {
      fmt::format("results   {}: metrics.jsonl, events.jsonl, logs/, trace.json, report.html, "
                  "checkpoints/step-{}",
                  name, number(outcome.step))};
  if (outcome.stopped) {
    lines.push_back(fmt::format("resume    ./strait resume {}   (from step {} of {})", name,
                                number(outcome.step), plan.steps));
  }
  lines.push_back(fmt::format("try       ./strait generate {} --prompt \"...\"", name));
  lines.push_back(fmt::format("export    ./strait export {} DIRECTORY", name));
  return lines;
}

}  // namespace strait::app
