#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "framework/net/run_id.h"
#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"

// On which host the shards of a checkpoint are. All functions are pure.
namespace strait::plan {

// A file of a checkpoint, with the process that wrote it.
struct WrittenShard {
  store::ShardFile file;
  net::ProcessName process;
  std::size_t host = 0;  // of that process
};

// In the order of the files; without files that no process of the plan writes.
std::vector<WrittenShard> written_shards(const Plan& plan,
                                         const std::vector<store::ShardFile>& files);

// The directory of a host's checkpoints in memory (checkpoint.memory_every), and of the copies that
// it has as a neighbour. Each host has its own, even where several are one machine.
std::filesystem::path memory_directory(const net::RunId& run, std::size_t host);

// For each host, the host that holds a second copy of its checkpoints in memory: the next one that
// has processes. Nullopt: no other host has processes, or this host has none.
std::vector<std::optional<std::size_t>> memory_neighbours(const Plan& plan);

// Upper limit of the bytes of checkpoints that a host holds in memory: two checkpoints of its own
// processes, because the newest is removed only when the next one is complete, and two of each host
// whose neighbour it is.
std::int64_t held_bytes(const Plan& plan, std::size_t host);

}  // namespace strait::plan
