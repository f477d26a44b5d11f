#include "launcher/planner/planned_tie.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "stages/looked_up_rows.h"

namespace strait::planner {
namespace {

constexpr std::int64_t kSteps = 4;  // looked at

}  // namespace

std::optional<TieBytes> tie_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                  const PreparedData& train) {
  const recipe::Recipe& recipe = plan.recipe;
  if (!model.tied || recipe.pipeline.stages == 1) return std::nullopt;
  stages::BatchOptions batch;
  batch.seed = static_cast<std::uint64_t>(recipe.seed);
  batch.replicas = recipe.pipeline.replicas;
  batch.micro_batch_rows = *recipe.train.micro_batch;
  batch.micro_batches = plan.micro_batches;
  batch.shuffle = recipe.data.shuffle;
  const stages::BatchSource source(train.tokens, nullptr, batch);
  const std::int64_t steps = std::min(plan.steps, kSteps);
  std::size_t rows = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    rows += stages::looked_up_rows(source, {store::Step{step}, true},
                                   static_cast<int>(plan.micro_batches))
                .tokens.size();
  }
  const double values = static_cast<double>(rows) *
                        static_cast<double>(model.tied_parameters / model.vocabulary) /
                        static_cast<double>(std::max<std::int64_t>(steps, 1));
  const bool narrow = recipe.model.dtype == recipe::Dtype::bfloat16;
  return TieBytes{values * 4, values * (narrow ? 2 : 4)};
}

void plan_tie_links(plan::Plan& plan, const TieBytes& bytes) {
  const auto last_stage = static_cast<std::uint32_t>(plan.recipe.pipeline.stages - 1);
  for (const plan::Plan::Process& first : plan.processes) {
    if (first.name.stage != 0) continue;
    plan::Plan::Link link;
    link.use = plan::Plan::Use::tie;
    link.connects = first.name;
    link.listens = {last_stage, first.name.replica};
    link.name = fmt::format("tie {}>{}", link.connects.text(), link.listens.text());
    link.forward_bytes = std::llround(bytes.gradients);
    link.backward_bytes = std::llround(bytes.values);
    link.first_forward_bytes = link.forward_bytes;
    plan.links.push_back(link);
  }
}

}  // namespace strait::planner
