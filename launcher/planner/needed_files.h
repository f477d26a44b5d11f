#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/stage_job.h"
#include "launcher/transfer/needed_group.h"

namespace strait::planner {

// Files that the processes on a host read before they start: data (first and last stages), plugins,
// and with `weights` tensors of their own layers, of the model and of an adapter to start from.
// StoreError, ConfigError, TensorMismatch.
std::vector<transfer::NeededGroup> needed_files(const plan::Plan& plan, std::size_t host,
                                                const std::vector<plan::PluginCopy>& plugins,
                                                bool weights);

// The needed part of a complete checkpoint, of any layout: its manifest, the headers of all shards,
// the shards of the same processes, and from other shards the tensors of own layers and of no
// layer.
transfer::NeededGroup needed_checkpoint(const plan::Plan& plan, std::size_t host,
                                        const std::filesystem::path& checkpoint, store::Part part);

}  // namespace strait::planner
