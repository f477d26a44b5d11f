#include "launcher/planner/planned_activations.h"

#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_slices.h"
#include "launcher/recipe/speeds.h"
#include "schedules/schedule.h"
#include "stages/activation_offload.h"

namespace strait::planner {
namespace {

constexpr int kPassesOnDevice = stages::ActivationOffload::kPassesOnDevice;

bool offloads_activations(const plan::Plan& plan, std::size_t host) {
  return plan.recipe.model.recompute == recipe::Recompute::offload &&
         plan::computes_on_gpus(plan, host);
}

}  // namespace

schedules::PassBytes pass_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                const models::LayerRange& chunk, std::int64_t tokens) {
  schedules::PassBytes bytes{.forward = slice_key_bytes(plan, model, chunk).held * tokens};
  for (int i = chunk.first; i <= chunk.last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    bytes.forward += layer.saved_bytes_per_token * tokens;
    bytes.weight_gradient += layer.weight_gradient_bytes_per_token * tokens;
  }
  return bytes;
}

void plan_activations(const plan::Plan& plan, const models::ModelDescription& model,
                      const schedules::ActionList& list, std::span<const schedules::PassBytes> held,
                      std::int64_t tokens, plan::Plan::Process& process) {
  process.activation_bytes = schedules::most_held(list, held);
  if (!offloads_activations(plan, process.host_index)) return;
  // What enters and leaves a chunk stays on the device.
  const std::int64_t ends = 2 * model.hidden * tokens * value_bytes(plan.recipe.model);
  const std::int64_t on_device =
      schedules::most_held(list, held, kPassesOnDevice) +
      std::max<std::int64_t>(process.in_flight - kPassesOnDevice, 0) * ends;
  if (on_device >= process.activation_bytes) return;
  process.waiting_bytes = std::exchange(process.activation_bytes, on_device);
}

void wait_for_offload(const plan::Plan& plan, const models::ModelDescription& model,
                      const models::LayerRange& layers, std::int64_t tokens, std::size_t host,
                      std::size_t stage, schedules::ChunkCost& cost) {
  if (!offloads_activations(plan, host)) return;
  const schedules::Schedule& schedule = schedules::schedule_named(plan.recipe.pipeline.schedule);
  const schedules::PipelineShape shape = shape_of(plan.recipe, plan.micro_batches, 0);
  const int waiting = schedule.most_in_flight(shape, static_cast<StageIndex>(stage));
  if (waiting <= kPassesOnDevice) return;
  double bytes = 0;
  for (int i = layers.first; i <= layers.last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    bytes += static_cast<double>(layer.saved_bytes_per_token * tokens);
  }
  const double compute = cost.forward_seconds + cost.backward_seconds;
  const double transfer = bytes / plan::kAssumedPcieBytesPerSecond;
  if (compute == 0 || transfer <= compute) return;
  const double slowness = transfer / compute;
  cost.forward_seconds *= slowness;
  cost.backward_seconds *= slowness;
  cost.weight_gradient_seconds *= slowness;
}

}  // namespace strait::planner
