#include "launcher/run/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/base/errors.h"

namespace strait::run {

void MemoryLedger::add(const Worker& from, const ShardsInMemory& shards) {
  Open& open = open_[shards.step];
  const net::ProcessName name = from.handle.name;
  if (std::ranges::find(open.parts, name, &MemoryPart::process) != open.parts.end()) {
    throw base::MessageError(fmt::format("{} reported its part of checkpoint {} in memory twice",
                                         name.describe(), store::number(shards.step)));
  }
  open.parts.push_back({name, from.hello ? from.hello->pid : 0, shards.shards});
  open.skipped = open.skipped || !shards.skipped.empty();
  if (open.parts.size() < workers_.present().size()) return;
  Open whole = std::move(open);
  open_.erase(shards.step);
  // The order of a checkpoint on disk: if several processes hold a tensor, the first one counts.
  std::ranges::sort(whole.parts, {}, &MemoryPart::process);
  if (holder_ != nullptr && !whole.skipped) return holder_->hold(shards.step, whole.parts);
  workers_.broadcast(MemoryReleased{shards.step});
}

void MemoryLedger::poll(bool quiet) {
  if (holder_ == nullptr) return;
  for (const MemoryDecision& one : holder_->take_decisions()) {
    workers_.broadcast(MemoryReleased{one.step});
    if (!one.place.empty()) observers_.notify(&RunObserver::in_memory, one.step, one.place);
    if (quiet || one.problem.empty() || one.problem == problem_) continue;
    problem_ = one.problem;
    observers_.launcher_event({"not_in_memory", one.problem});
  }
}

}  // namespace strait::run
