#pragma once

#include "launcher/planner/plan_maker.h"
#include "launcher/recipe/links.h"

namespace strait::compute {

// What the speed of a CPU in a block depends on, coarse, so that few measurements serve all
// recipes.
struct BlockSize {
  std::int64_t width = 64;    // hidden size
  std::int64_t tokens = 128;  // of a micro-batch
  std::int64_t threads = 1;   // of a process
  bool operator==(const BlockSize&) const = default;
};
// For a model of this width and these tokens and threads, on a machine with this number of cores.
BlockSize block_size(std::int64_t width, std::int64_t tokens, std::int64_t threads,
                     std::int64_t cores);

// The speed of this machine's CPU in a block of GPT-2 of this size. Measured in two seconds, and
// kept in a file by processor, build and size, unless other programs slowed it down. An empty or
// unwritable folder: not kept.
recipe::MeasuredHost cpu_speed(const std::string& host, const BlockSize& size,
                               const std::filesystem::path& folder);
std::filesystem::path file_of_speed(const BlockSize& size, const std::filesystem::path& folder);

// make_plan() of a run that begins. Where it computes on this machine's CPU, and the recipe names
// no measurements (hosts.links), with cpu_speed().
planner::PlannedRun plan_first(const recipe::Recipe& recipe);

}  // namespace strait::compute
