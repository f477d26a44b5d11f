#include "launcher/planner/planned_tie.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "framework/codec/codecs.h"
#include "stages/link_tie.h"

namespace strait::planner {
namespace {

constexpr std::int64_t kSteps = 4;  // that are examined

// `raw`: bytes of a value that is not encoded.
double bytes_of_rows(const recipe::Recipe& recipe, const models::ModelDescription& model,
                     codec::Direction direction, double rows, double raw) {
  constexpr int kBfloat16Bits = 16;
  codec::DirectionSettings settings;
  settings.codec = stages::tied_row_codec(recipe.codec);
  settings.direction = direction;
  const std::string& codec = settings.codec.name(direction);
  const std::int64_t width = model.tied_parameters / model.vocabulary;
  const double values = rows * static_cast<double>(width);
  if (codec == "raw") return values * raw;
  if (settings.bits() == kBfloat16Bits) return values * 2;
  // The headers of messages are ignored, because they are small compared with the rows.
  return codec::codecs().named(codec).payload(settings, {1, rows, width}).first;
}

}  // namespace

std::optional<TieBytes> tie_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                  const data::PreparedData& train) {
  const recipe::Recipe& recipe = plan.recipe;
  if (!model.tied || !model.tied_trained || recipe.pipeline.stages == 1) return std::nullopt;
  stages::BatchOptions batch;
  batch.seed = static_cast<std::uint64_t>(recipe.seed);
  batch.replicas = recipe.pipeline.replicas;
  batch.micro_batch_rows = plan.micro_batch_rows();
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
  const double mean =
      static_cast<double>(rows) / static_cast<double>(std::max<std::int64_t>(steps, 1));
  const bool narrow = recipe.model.dtype == recipe::Dtype::bfloat16;
  return TieBytes{bytes_of_rows(recipe, model, codec::Direction::backward, mean, 4),
                  bytes_of_rows(recipe, model, codec::Direction::forward, mean, narrow ? 2 : 4)};
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
