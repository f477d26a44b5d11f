#include "launcher/run/checkpoint_ledger.h"

#include <fmt/format.h>

#include "launcher/base/errors.h"

namespace strait::run {

std::optional<std::vector<store::ShardFile>> CheckpointLedger::written(
    net::ProcessName process, const ShardsWritten& shards) {
  if (lost_.contains({shards.step, shards.epoch})) return std::nullopt;
  auto& parts = open_[shards.step];
  if (!parts.emplace(process, shards.files).second) {
    throw base::MessageError(fmt::format("{} reported its shards of checkpoint {} twice",
                                         process.describe(), store::number(shards.step)));
  }
  if (parts.size() < processes_) return std::nullopt;
  std::vector<store::ShardFile> files;
  for (const auto& [name, own] : parts) files.insert(files.end(), own.begin(), own.end());
  open_.erase(shards.step);
  return files;
}

bool CheckpointLedger::failed(store::Step step, std::uint32_t epoch) {
  open_.erase(step);
  return lost_.insert({step, epoch}).second;
}

std::vector<store::Step> CheckpointLedger::regroup(std::uint32_t epoch, std::size_t processes) {
  std::vector<store::Step> again;
  for (const auto& [step, parts] : open_) again.push_back(step);
  for (const store::Step step : again) lost_.insert({step, epoch_});
  open_.clear();
  epoch_ = epoch;
  processes_ = processes;
  return again;
}

bool CheckpointLedger::outdated(store::Step step, std::uint32_t epoch) {
  return epoch < epoch_ && lost_.insert({step, epoch}).second;
}

}  // namespace strait::run
