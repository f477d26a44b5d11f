#pragma once

#include "launcher/planner/layer_times.h"
#include "launcher/recipe/links.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"
#include "schedules/schedule.h"

namespace strait::planner {

// The layers of chunks, and the hosts of stages.
struct PlannedCut {
  std::vector<models::LayerRange> layers;  // by position; see schedules/pipeline_shape.h
  std::vector<std::size_t> hosts;  // by replica, then by stage: index in hosts_of() (placement.h)
};

// Bytes of each GPU that a host's stages use. Empty: they compute on its CPU. Nullopt: not known.
using KnownGpus = std::optional<std::vector<std::int64_t>>;
// GPUs by host: from `speeds`, and for this machine from its driver. Empty if the recipe says
// "cpu".
std::vector<KnownGpus> gpus_of_hosts(const recipe::Recipe& recipe, const recipe::LinkTable& speeds);

// Calls the recipe's partition, built in or from a plugin, once per replica, and checks its result.
// `speeds`: measured speeds of the hosts. `layer_times`: measured, for "profile".
// stages::PartitionError, UserError: the partition has no result, or an invalid one.
PlannedCut plan_cut(const recipe::Recipe& recipe, const recipe::LinkTable& speeds,
                    const models::ModelDescription& model, std::int64_t micro_batches,
                    const std::vector<LayerTime>& layer_times = {});

// Memory per parameter. A trained one has a master, a gradient and two moments; with bfloat16 also
// the parameter itself. Sizes of blocks of int8 moments are left out: 0.03 bytes.
struct StateBytes {
  std::int64_t trained = 16;   // where it computes
  std::int64_t offloaded = 0;  // in host memory: master and moments of a stage on a GPU
  std::int64_t on_disk = 0;    // in files: moments, and a master apart from its parameter
  std::int64_t moments = 8;    // of these
  std::int64_t saved = 12;     // of these, in a checkpoint: master and moments
  std::int64_t frozen = 4;
};
StateBytes state_bytes(const recipe::Recipe& recipe, bool on_gpu);

// ---- schedule

// Chunks of the model per stage: as the recipe states, else as its ranges imply, else the default
// of its schedule.
std::int64_t chunks_of(const recipe::Recipe& recipe);

schedules::PipelineShape shape_of(const recipe::Recipe& recipe, std::int64_t micro_batches,
                                  std::int64_t depth);

// The schedule of a recipe, checked at every depth that a plan can choose. UserError: the action
// lists of a plugin are invalid, or the schedule does not support chunks.
const schedules::Schedule& plan_schedule(const recipe::Recipe& recipe, std::int64_t micro_batches);

}  // namespace strait::planner
