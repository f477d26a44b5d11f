#include "launcher/planner/planned_frozen_rows.h"

#include "launcher/planner/plan_load.h"
#include "launcher/planner/planned_model.h"
#include "launcher/recipe/speeds.h"
#include "models/families.h"

namespace strait::planner {
namespace {

// The most rows that a replica visits.
std::int64_t rows_of_replica(const plan::Plan& plan) {
  const std::int64_t replicas = plan.recipe.pipeline.replicas;
  if (plan.replica_rows.empty()) return (plan.train.rows + replicas - 1) / replicas;
  const std::int64_t most = std::ranges::max(plan.replica_rows);
  return std::min(plan.train.rows, (plan.train.rows / plan.recipe.train.batch + 1) * most);
}

// Whether what enters the first trained layer has the same bits at every visit of a sample.
bool frozen_rows_repeat(const plan::Plan& plan, const models::ModelDescription& model,
                        const FrozenRowsQuestion& question) {
  const int first = model.first_trained_layer();
  const recipe::Recipe& recipe = plan.recipe;
  // Embeddings alone are not worth their memory.
  if (first < 2 || model.tied_trained || recipe.train.neftune != 0) return false;
  if (plan.slices > 1) return false;  // those of a slice are not all that its attention reads
  const models::ModelConfig config = planned_model(plan);
  const auto repeats = models::family_of(config).repeats;
  if (repeats == nullptr || !repeats(config, {0, first - 1})) return false;
  // A product of matrices may round a row by its place among others: not on CPUs, where each thread
  // has some rows; on GPUs this has not been measured.
  constexpr std::int64_t kRowsOfThread = 16;
  const std::int64_t tokens = plan.micro_batch_rows() * recipe.data.row;
  if (std::ranges::any_of(question.hosts,
                          [&](std::size_t host) { return plan::computes_on_gpus(plan, host); })) {
    return false;
  }
  if (plan.micro_batch_rows() > 1 && tokens < kRowsOfThread * question.threads) return false;
  if (recipe.pipeline.stages == 1) return true;
  // They share the memory of caches. Below the first trained layer a codec must send the same at
  // each visit: all but raw draw the rounding anew, or send a change.
  if (cached_directions(recipe.codec, true) > 0) return false;
  return question.first_chunk.last >= first || recipe.codec.forward == "raw";
}

}  // namespace

codec::CacheLimits frozen_rows(const plan::Plan& plan, const models::ModelDescription& model,
                               const FrozenRowsQuestion& question) {
  const bool samples_return = plan.steps > plan.epoch_steps;
  if (!samples_return || !frozen_rows_repeat(plan, model, question)) return {};
  const auto below = static_cast<std::size_t>(model.first_trained_layer() - 1);
  codec::CacheLimits limits;
  constexpr std::int64_t kUnit = 64;  // of codec::SlotStore
  const std::int64_t row =
      plan.recipe.data.row * model.layers[below].output_width * value_bytes(plan.recipe.model);
  limits.entry_bytes = (row + kUnit - 1) / kUnit * kUnit;
  limits.memory_bytes = plan.recipe.codec.cache;
  limits.disk_bytes = plan.recipe.codec.cache_disk;
  limits.rows = rows_of_replica(plan);
  const std::int64_t room =
      limits.memory_bytes / limits.entry_bytes + limits.disk_bytes / limits.entry_bytes;
  return limits.rows <= room ? limits : codec::CacheLimits();
}

codec::CacheLimits frozen_rows(const plan::Plan& plan, const models::ModelDescription& model) {
  FrozenRowsQuestion question;
  question.first_chunk = plan.processes.at(0).chunks.at(0);
  for (const plan::Plan::Process& process : plan.processes) {
    question.hosts.push_back(process.host_index);
    question.threads = std::max(question.threads, process.threads);
  }
  return frozen_rows(plan, model, question);
}

models::LayerRange later_layers(const models::LayerRange& chunk,
                                const models::ModelDescription& model,
                                const codec::CacheLimits& frozen) {
  if (frozen.entry_bytes == 0) return chunk;
  return {std::max(chunk.first, model.first_trained_layer()), chunk.last};
}

std::int64_t frozen_row_bytes(const std::vector<models::LayerRange>& chunks,
                              const models::ModelDescription& model,
                              const codec::CacheLimits& frozen) {
  const int first = model.first_trained_layer();
  const bool here = std::ranges::any_of(
      chunks, [&](const auto& chunk) { return chunk.first <= first && first <= chunk.last; });
  return here ? frozen.used_memory() : 0;
}

void empty_frozen_boundaries(const std::vector<models::LayerRange>& ranges,
                             const models::ModelDescription& model,
                             std::vector<PlannedBoundary>& boundaries) {
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    if (ranges[i].last >= model.first_trained_layer()) continue;
    boundaries[i].hits = 1;
    boundaries[i].bytes.known_forward = 0;
  }
}

}  // namespace strait::planner
