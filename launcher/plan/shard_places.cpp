#include "launcher/plan/shard_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "framework/store/checkpoint_files.h"
#include "framework/store/memory_directory.h"

namespace strait::plan {

std::vector<WrittenShard> written_shards(const Plan& plan,
                                         const std::vector<store::ShardFile>& files) {
  std::map<std::string, const Plan::Process*> writers;
  for (const Plan::Process& process : plan.processes) {
    for (const std::string& name : store::file_names(process.name.stage, process.name.replica)) {
      writers[name] = &process;
    }
  }
  std::vector<WrittenShard> shards;
  for (const store::ShardFile& file : files) {
    const auto found = writers.find(file.name);
    if (found == writers.end()) continue;
    shards.push_back({file, found->second->name, found->second->host_index});
  }
  return shards;
}

std::filesystem::path memory_directory(const net::RunId& run, std::size_t host) {
  return store::MemoryDirectory::path_of(fmt::format("{}-{}", run.hex(), host));
}

std::vector<std::optional<std::size_t>> memory_neighbours(const Plan& plan) {
  std::vector<std::size_t> used;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    if (std::ranges::count(plan.processes, host, &Plan::Process::host_index) > 0) {
      used.push_back(host);
    }
  }
  std::vector<std::optional<std::size_t>> neighbours(plan.hosts.size());
  if (used.size() < 2) return neighbours;
  for (std::size_t i = 0; i < used.size(); ++i) neighbours[used[i]] = used[(i + 1) % used.size()];
  return neighbours;
}

std::int64_t held_bytes(const Plan& plan, std::size_t host) {
  if (plan.recipe.checkpoint.memory_every == 0) return 0;
  constexpr std::int64_t kGenerations = 2;
  const auto neighbours = memory_neighbours(plan);
  std::int64_t bytes = 0;
  for (const Plan::Process& process : plan.processes) {
    const std::int64_t one = process.saved_bytes + process.cache_bytes;
    const std::size_t owner = process.host_index;
    if (owner == host) bytes += kGenerations * one;
    if (neighbours[owner] == host) bytes += kGenerations * one;
  }
  return bytes;
}

}  // namespace strait::plan
