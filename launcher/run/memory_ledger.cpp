#include "launcher/run/memory_ledger.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/base/errors.h"

namespace strait::run {

void MemoryLedger::add(const Worker& from, const ShardsInMemory& shards) {
  Open& open = open_[shards.step];
  const net::ProcessName name = from.handle.name;
  if (!open.parts.emplace(name, shards.files).second) {
    throw base::MessageError(fmt::format("{} reported its part of checkpoint {} in memory twice",
                                         name.describe(), store::number(shards.step)));
  }
  open.skipped = open.skipped || shards.skipped;
  if (!shards.problem.empty()) open.problem = from.describe() + ": " + shards.problem;
  if (open.parts.size() < workers_.present().size()) return;
  const Open whole = std::move(open);
  open_.erase(shards.step);
  if (holder_ == nullptr || whole.skipped) {
    // What keeps one from being written keeps the next ones, too: it is named once.
    const bool named = whole.problem.empty() || std::exchange(failing_, true);
    return decide(
        {shards.step, "", named ? "" : "a checkpoint is not held in memory: " + whole.problem},
        false);
  }
  failing_ = false;
  std::vector<store::ShardFile> files;
  for (const auto& [process, own] : whole.parts) files.insert(files.end(), own.begin(), own.end());
  holder_->hold(shards.step, std::move(files));
}

void MemoryLedger::poll(bool quiet) {
  if (holder_ == nullptr) return;
  for (const MemoryDecision& one : holder_->take_decisions()) decide(one, quiet);
}

void MemoryLedger::decide(const MemoryDecision& decision, bool quiet) {
  const bool kept = !decision.place.empty();
  workers_.broadcast(MemoryDecided{decision.step, kept});
  if (kept) observers_.notify(&RunObserver::in_memory, decision.step, decision.place);
  if (quiet || decision.problem.empty() || decision.problem == problem_) return;
  problem_ = decision.problem;
  observers_.launcher_event({"not_in_memory", decision.problem});
}

}  // namespace strait::run
