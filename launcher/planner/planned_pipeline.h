#pragma once

#include <cstdint>
#include <vector>

#include "framework/data/data_preparation.h"
#include "launcher/plan/plan.h"
#include "launcher/planner/layer_times.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// What the pipeline of a plan follows from, beside the plan's recipe, data and hosts.
struct PipelineQuestion {
  const models::ModelDescription& model;
  const data::PreparedData& train;
  std::int64_t recomputed_bytes_per_token = 0;  // see recompute_layers()
  const plan::Plan* before = nullptr;           // see plan_sync()
  std::vector<LayerTime> layer_times = {};      // for the partition "profile"
  // Each pass is forecast to take as long as if it had so many tokens more. Measured speeds have
  // that in them, so it counts only where sizes of micro-batches are compared.
  std::int64_t pass_tokens = 0;
};

// Threads of a process on a host with so many of them, as far as they are known before the host
// reports its cores.
std::int64_t threads_of(const recipe::Recipe& recipe, std::int64_t processes_of_host);

// Whether caches of activations hold anything: where no sample comes a second time they stay empty.
// Needs data and steps.
bool fills_caches(const plan::Plan& plan);

// Completes a plan that has recipe, data, hosts and speeds: layers, depth, processes, links, sync.
// `resolved` is its recipe with what was chosen for "auto" and "profile". UserError,
// stages::PartitionError: there is no such pipeline; out_of_memory where it does not fit.
void plan_pipeline(plan::Plan& plan, const recipe::Recipe& resolved,
                   const PipelineQuestion& question);

}  // namespace strait::planner
