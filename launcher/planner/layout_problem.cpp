#include "framework/sync/forecast.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/recipe/speeds.h"
#include "placement/problem.h"
#include "stages/activation_offload.h"
#include "stages/stage_layout.h"

namespace strait::planner {
namespace {

// The search needs the size of a micro-batch; the plan chooses it later, for each layout by itself.
constexpr std::int64_t kMicroBatchesOfAutomatic = 16;

std::int64_t rows_of_micro_batch(const recipe::Recipe& recipe) {
  if (recipe.train.micro_batch) return *recipe.train.micro_batch;
  std::int64_t rows = 1;
  for (std::int64_t more = 1; more * kMicroBatchesOfAutomatic <= recipe.train.batch; ++more) {
    if (recipe.train.batch % more == 0) rows = more;
  }
  return rows;
}

// Its GPUs, else the slots that the recipe gives it, else one place.
std::int64_t places_of(const recipe::RecipeHost& host, const plan::Plan::Host& known) {
  if (host.slots) return *host.slots;
  return known.gpus && !known.gpus->empty() ? std::ssize(*known.gpus) : 1;
}

void add_devices(const plan::Plan& plan, const models::ModelDescription& model,
                 placement::Problem& problem) {
  const models::LayerRange all{0, static_cast<int>(std::ssize(model.layers)) - 1};
  double trained = 0;
  for (const models::LayerCost& layer : model.layers) trained += static_cast<double>(layer.trained);
  const std::vector<recipe::RecipeHost> hosts = plan::hosts_of(plan.recipe);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::int64_t places = places_of(hosts[i], plan.hosts[i]);
    const double update = update_seconds(plan, i, model, all, {.all = places});
    for (std::int64_t place = 0; place < places; ++place) {
      const plan::ComputeSpeed speed =
          plan::compute_speed(plan, i, threads_of(plan.recipe, places), places);
      placement::Device& device = problem.devices.emplace_back();
      device.host = i;
      // Layers are counted with the backward that is assumed elsewhere.
      device.flops_per_second =
          speed.flops_per_second * (1 + plan::kAssumedBackwardCost) / (1 + speed.backward);
      if (update > 0) device.updates_per_second = trained / update;
      const auto& gpus = plan.hosts[i].gpus;
      if (gpus && !gpus->empty()) {
        device.memory_bytes =
            static_cast<double>((*gpus)[static_cast<std::size_t>(place) % gpus->size()]);
      } else if (hosts[i].memory && !plan::computes_on_gpus(plan, i)) {
        device.memory_bytes = static_cast<double>(*hosts[i].memory) / static_cast<double>(places);
      }
    }
  }
}

void add_paths(const plan::Plan& plan, placement::Problem& problem) {
  problem.hosts.resize(plan.hosts.size());
  for (std::size_t from = 0; from < plan.hosts.size(); ++from) {
    placement::Line line{0, 0};  // as stated, or as wide as its widest path
    for (std::size_t to = 0; to < plan.hosts.size(); ++to) {
      const plan::PathSpeed speed = plan::path_speed(plan, from, to);
      problem.paths.push_back({speed.bytes_per_second, from == to ? 0 : speed.seconds});
      if (from == to) continue;
      line.up_bytes_per_second = std::max(line.up_bytes_per_second, speed.uplink);
      line.down_bytes_per_second =
          std::max(line.down_bytes_per_second, plan::path_speed(plan, to, from).downlink);
    }
    if (plan.hosts.size() > 1) problem.hosts[from] = line;
  }
}

// Blocks; the embedding counts with the first one, the head with the last.
void add_layers(const plan::Plan& plan, const models::ModelDescription& model, std::int64_t tokens,
                double sync_bytes_per_value, placement::Problem& problem) {
  bool on_gpu = false;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) on_gpu |= plan::computes_on_gpus(plan, i);
  const StateBytes bytes = state_bytes(plan.recipe, on_gpu);
  const int last = static_cast<int>(std::ssize(model.layers)) - 1;
  problem.layers.resize(static_cast<std::size_t>(last - 1));
  for (int i = 0; i <= last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    const schedules::ChunkCost cost =
        chunk_cost(model, {i, i}, tokens, {1, plan::kAssumedBackwardCost, false});
    const auto frozen = layer.parameters - layer.trained - layer.quantized.parameters;
    placement::Layer& block =
        problem.layers[static_cast<std::size_t>(std::clamp(i, 1, last - 1) - 1)];
    block.flops += cost.forward_seconds + cost.backward_seconds;
    block.state_bytes += static_cast<double>(layer.trained * bytes.trained + layer.quantized.bytes +
                                             frozen * bytes.frozen);
    block.saved_bytes += static_cast<double>(layer.saved_bytes_per_token * tokens);
    block.sync_bytes += static_cast<double>(layer.trained) * sync_bytes_per_value;
    block.updated += static_cast<double>(layer.trained);
  }
}

// What replicas exchange for each value, how often, and what of it a step waits for. With "auto"
// the method that sends least: what a layout costs with the chosen one, its plan says.
void add_sync(const plan::Plan& plan, const models::ModelDescription& model,
              placement::Problem& problem, double& bytes_per_value) {
  const sync::Layout layout =
      stages::stage_layout(model, {{0, static_cast<int>(std::ssize(model.layers)) - 1}});
  const std::string chosen = recipe::sync_method_of(plan.recipe);
  if (chosen.empty()) return;  // there is one replica
  std::vector<std::string> methods{chosen};
  if (chosen == recipe::kAutomaticSync) methods = sync::method_names();
  std::optional<sync::Forecast> least;
  for (const std::string& method : methods) {
    const sync::Forecast one =
        sync::forecast(sync_settings(plan.recipe, method, plan.steps), layout, 2);
    if (least && one.step_bytes >= least->step_bytes) continue;
    least = one;
    problem.rounds = one.round_bytes > 0 ? std::min(one.step_bytes / one.round_bytes, 1.0) : 1;
    problem.agrees_each_step = !trains_apart(plan, method);
  }
  problem.sync_overlaps = least->staleness > 0;
  bytes_per_value = least->step_bytes / static_cast<double>(layout.size());
}

}  // namespace

placement::Problem layout_problem(const plan::Plan& plan, const PipelineQuestion& question) {
  const recipe::Recipe& recipe = plan.recipe;
  const std::int64_t rows = rows_of_micro_batch(recipe);
  placement::Problem problem;
  problem.micro_batches = recipe.train.batch / rows;
  add_devices(plan, question.model, problem);
  add_paths(plan, problem);
  double sync_bytes_per_value = 0;
  add_sync(plan, question.model, problem, sync_bytes_per_value);
  add_layers(plan, question.model, rows * recipe.data.row, sync_bytes_per_value, problem);
  const BoundaryBytes bytes =
      boundary_bytes(recipe.codec, {.width = question.model.hidden,
                                    .rows = rows,
                                    .tokens_per_row = static_cast<double>(recipe.data.row)});
  const bool repeats = plan.steps > plan.epoch_steps;
  problem.forward_bytes = repeats ? bytes.known_forward : bytes.first_forward;
  problem.backward_bytes = bytes.backward;
  if (question.recompute == recipe::Recompute::offload) {
    problem.most_held = stages::ActivationOffload::kPassesOnDevice;
  }
  if (!recipe.pipeline.choose_stages) problem.stages = static_cast<int>(recipe.pipeline.stages);
  if (!recipe.pipeline.choose_replicas) {
    problem.replicas = static_cast<int>(recipe.pipeline.replicas);
  }
  return problem;
}

}  // namespace strait::planner
