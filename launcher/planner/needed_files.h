#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/stage_job.h"
#include "launcher/transfer/needed_files.h"

namespace strait::planner {

// What the processes on a host read before they begin: rows at the ends of a pipeline, of a model
// the tensors of their own layers, and plugins. StoreError, ConfigError, TensorMismatch.
std::vector<transfer::NeededGroup> needed_files(const plan::Plan& plan, std::size_t host,
                                      const std::vector<plan::PluginCopy>& plugins, bool weights);

// Of a complete checkpoint, whatever layout made it: its manifest, all shards' headers, the shards
// of the same processes, and of the others the tensors of own layers and those of no layer.
transfer::NeededGroup needed_checkpoint(const plan::Plan& plan, std::size_t host,
                              const std::filesystem::path& checkpoint);

}  // namespace strait::planner
