#include "launcher/planner/planned_slices.h"

#include "launcher/base/errors.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"

namespace strait::planner {

void check_slices(const recipe::Recipe& recipe, const models::ModelDescription& model) {
  const std::int64_t slices = recipe.pipeline.slices.value_or(1);
  if (slices == 1 || model.trains_whole_rows.empty()) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "pipeline.slices is {}, but a model of the family {} trains whole rows: "
                        "{}; leave pipeline.slices out",
                        slices, model.family, model.trains_whole_rows);
}

bool may_slice(const recipe::Recipe& recipe, const models::ModelDescription& model,
               std::int64_t slices) {
  return recipe.data.row % slices == 0 && model.trains_whole_rows.empty() &&
         recipe.train.preference.loss == recipe::PreferenceKind::none &&
         recipe.model.recompute != recipe::Recompute::offload;
}

std::vector<std::int64_t> possible_slices(const recipe::Recipe& recipe,
                                          const models::ModelDescription& model) {
  // Products of fewer rows take longer.
  constexpr std::int64_t kFewestTokens = 64;
  constexpr std::int64_t kMostSlices = 16;
  std::vector<std::int64_t> possible{1};
  if (recipe.pipeline.stages == 1) return possible;
  for (std::int64_t slices = 2; slices <= kMostSlices; slices *= 2) {
    if (!may_slice(recipe, model, slices) || recipe.data.row / slices < kFewestTokens) break;
    possible.push_back(slices);
  }
  return possible;
}

std::int64_t best_slices(
    const std::vector<std::int64_t>& possible,
    const std::function<std::optional<double>(std::int64_t slices)>& step_seconds) {
  constexpr double kTolerance = 1.01;
  // Twice the slices at most halve what the pipeline waits, so each doubling gains less than the
  // one before, and all that follow together no more than it.
  constexpr double kClearlyShorter = 0.995;
  std::vector<std::pair<std::int64_t, double>> fitting;
  double shortest = std::numeric_limits<double>::infinity();
  for (const std::int64_t slices : possible) {
    const std::optional<double> seconds = step_seconds(slices);
    if (!seconds) continue;
    fitting.emplace_back(slices, *seconds);
    const bool ends = *seconds > kClearlyShorter * shortest;
    shortest = std::min(shortest, *seconds);
    if (ends) break;
  }
  for (const auto& [slices, seconds] : fitting) {
    if (seconds <= kTolerance * shortest) return slices;
  }
  return 1;
}

std::int64_t slice_pass_tokens(const plan::Plan& plan) {
  return (plan.slices - 1) * assumed_pass_tokens(plan);
}

StepCosts costs_of_a_slice(StepCosts costs) {
  const double part = 1 / static_cast<double>(costs.slices);
  for (schedules::ChunkCost& chunk : costs.chunks) {
    chunk.forward_seconds *= part;
    chunk.backward_seconds *= part;
    chunk.weight_gradient_seconds *= part;
    chunk.bytes_in_flight *= part;
    chunk.weight_gradient_bytes *= part;
  }
  for (schedules::LinkCost& link : costs.links) {
    link.forward_bytes *= part;
    link.backward_bytes *= part;
    link.forward_coding_seconds *= part;
    link.backward_coding_seconds *= part;
  }
  return costs;
}

// models::SliceKeys keeps the keys and values of each slice. The backward of each but the first
// reads a copy of them from the start of the row, and adds to their gradients, which stay until the
// backward of their own slice. Without recompute these take no more than what backwards drop.
SliceKeyBytes slice_key_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                              const models::LayerRange& chunk) {
  SliceKeyBytes bytes;
  const std::int64_t slices = plan.slices;
  if (slices == 1) return bytes;
  const bool recomputes = plan.recipe.model.recompute == recipe::Recompute::layer;
  std::int64_t copy = 0;
  for (int i = chunk.first; i <= chunk.last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    const std::int64_t own = layer.attended_values * value_bytes(plan.recipe.model);
    const bool has_backward = layer.backward_factor > 0;
    bytes.held +=
        has_backward && !recomputes ? own * (slices * (slices + 1) / 2 - 1) / slices : own;
    if (!has_backward || !recomputes) continue;
    bytes.working += own;
    copy = std::max(copy, own);
  }
  bytes.working += copy;
  return bytes;
}

}  // namespace strait::planner
