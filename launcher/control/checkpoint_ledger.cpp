#include "launcher/control/checkpoint_ledger.h"

#include <fmt/format.h>

namespace strait::launcher {

std::optional<std::vector<store::ShardFile>> CheckpointLedger::written(
    net::ProcessName process, const ShardsWritten& shards) {
  if (lost_.contains(shards.step)) return std::nullopt;
  auto& parts = open_[shards.step];
  if (!parts.emplace(process, shards.files).second) {
    throw ControlError(fmt::format("{} reported its part of checkpoint {} twice",
                                   process.describe(), store::number(shards.step)));
  }
  if (parts.size() < processes_) return std::nullopt;
  std::vector<store::ShardFile> files;
  for (const auto& [name, own] : parts) files.insert(files.end(), own.begin(), own.end());
  open_.erase(shards.step);
  return files;
}

bool CheckpointLedger::failed(store::Step step) {
  open_.erase(step);
  return lost_.insert(step).second;
}

}  // namespace strait::launcher
