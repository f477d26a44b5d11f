#pragma once

#include <cstddef>
#include <cstdint>

#include "launcher/plan/plan.h"

namespace strait::plan {

// What each process takes of a GPU beside its tensors: CUDA's context, its libraries' workspaces.
inline constexpr std::int64_t kGpuContextBytes = std::int64_t{640} << 20;

// UserError: stages that share a GPU of this host need more memory there than it has. It names the
// GPU, these stages and what each needs. Without GPUs, or where none are known, nothing is checked.
// Codecs' caches and copies for checkpoints are in the host's memory. Pure.
void check_gpu_memory(const Plan& plan, std::size_t host);

// What the host's stages need of its own memory: all that they keep, but what is on a GPU. Pure.
std::int64_t host_memory_needed(const Plan& plan, std::size_t host);

}  // namespace strait::plan
