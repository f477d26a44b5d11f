#pragma once

#include "framework/data/data_preparation.h"
#include "launcher/planner/layer_times.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// What a pipeline depends on in addition to the plan's recipe, data and hosts.
struct PipelineQuestion {
  const models::ModelDescription& model;
  const data::PreparedData& train;
  std::int64_t recomputed_bytes_per_token = 0;            // see recompute_layers()
  const plan::Plan* before = nullptr;                     // see plan_sync()
  recipe::Recompute recompute = recipe::Recompute::none;  // of `model`
  recipe::Moments moments = recipe::Moments::float32;
  recipe::Offload offload = recipe::Offload::none;
  std::vector<LayerTime> layer_times = {};  // for the partition "profile"
  // Each pass is forecast to take as long as if it had this number of tokens more. Measured speeds
  // include that, so it counts only where sizes of micro-batches are compared.
  std::int64_t pass_tokens = 0;
};

// The fixed cost of a pass as a number of tokens.
std::int64_t assumed_pass_tokens(const plan::Plan& plan);

// Threads of a process on a host with this number of processes, before the host has reported its
// cores.
std::int64_t threads_of(const recipe::Recipe& recipe, std::int64_t processes_of_host);

// Whether caches of activations store anything. They stay empty if no sample is used a second time.
// Needs data and steps.
bool fills_caches(const plan::Plan& plan);

// Whether the processes fit into the memory that is known. That of other hosts is known only where
// the recipe states it.
bool fits_memory(const plan::Plan& plan);

// UserError: the plan does not have the link that the recipe simulates, which would be ignored.
void check_simulated_link(const plan::Plan& plan);

// Completes a plan that has recipe, data, hosts and speeds: layers, depth, processes, links, sync.
// `resolved` is its recipe with the choices for "auto" and "profile". UserError,
// stages::PartitionError: there is no such pipeline; out_of_memory: it does not fit.
void plan_pipeline(plan::Plan& plan, const recipe::Recipe& resolved,
                   const PipelineQuestion& question);

}  // namespace strait::planner
