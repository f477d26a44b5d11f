#pragma once

#include "launcher/recipe/plan.h"
#include "models/model_description.h"
#include "schedules/simulate.h"

// What forwards keep for their backwards, and where: on the device, or for `model.recompute =
// "offload"` in host memory.
namespace strait::planner {

// What a chunk holds of a micro-batch.
schedules::PassBytes pass_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                const models::LayerRange& chunk, std::int64_t tokens);

// Sets the activations of a process that has its host, chunks and number in flight. `list` of its
// stage, `held` of a micro-batch by chunk, `tokens` of a micro-batch.
void plan_activations(const plan::Plan& plan, const models::ModelDescription& model,
                      const schedules::ActionList& list, std::span<const schedules::PassBytes> held,
                      std::int64_t tokens, plan::Plan::Process& process);

// Lets a chunk take at least as long as the activations of a micro-batch take over PCIe, in one
// direction, where they wait in host memory: in stages in which several micro-batches wait.
void wait_for_offload(const plan::Plan& plan, const models::ModelDescription& model,
                      const models::LayerRange& layers, std::int64_t tokens, std::size_t host,
                      std::size_t stage, schedules::ChunkCost& cost);

}  // namespace strait::planner
