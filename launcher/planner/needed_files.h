#pragma once

#include "framework/store/checkpoint.h"
#include "launcher/hosts/needed_group.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/stage_job.h"

namespace strait::planner {

// Files that the processes on a host read before they start: data (first and last stages) and
// plugins; with `weights` also the tensors of their own layers from the model, and from an adapter
// to start from. StoreError, ConfigError, TensorMismatch.
std::vector<transfer::NeededGroup> needed_files(const plan::Plan& plan, std::size_t host,
                                                const std::vector<plan::PluginCopy>& plugins,
                                                bool weights);

// The part of a complete checkpoint that the host needs, whatever the checkpoint's layout: the
// manifest, the headers of all shards, the shards of the host's processes, and from other shards
// the tensors of its layers and those without a layer.
transfer::NeededGroup needed_checkpoint(const plan::Plan& plan, std::size_t host,
                                        const std::filesystem::path& checkpoint, store::Part part);

}  // namespace strait::planner
