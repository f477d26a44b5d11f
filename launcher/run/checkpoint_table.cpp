#include "launcher/run/checkpoint_table.h"

#include "framework/store/store_error.h"

namespace strait::run {

using store::Step;

void CheckpointTable::judge(std::optional<Step> good, store::BestRule best) {
  const MutexLock lock(mutex_);
  judged_.good = good;
  judged_.best = std::move(best);
  const std::vector<Step> kept = kept_in_memory();
  // To prune costs a message to every host, so nothing is sent unless something goes.
  if (kept.size() < held_.size()) prune_memory(kept);
}

store::PruneRule CheckpointTable::rule() const {
  const MutexLock lock(mutex_);
  store::PruneRule rule = judged_;
  rule.keep = *settings_.keep;
  rule.part = settings_.fetched;
  return rule;
}

// Newest first.
std::vector<Step> CheckpointTable::fetched_steps() const {
  std::vector<Step> steps;
  for (const store::Checkpoint& checkpoint :
       store::list_checkpoints(settings_.run, store::Verify::sizes, settings_.fetched).complete) {
    steps.push_back(checkpoint.manifest.step);
  }
  return steps;
}

void CheckpointTable::note(const store::Pruned& pruned) {
  const MutexLock lock(mutex_);
  left_.insert(left_.end(), pruned.left.begin(), pruned.left.end());
}

store::Pruned CheckpointTable::prune(store::PruneTime time) {
  if (agent_ == nullptr || time == store::PruneTime::at_start) {
    return store::prune_checkpoints(settings_.run, rule(), time);
  }
  const MutexLock lock(mutex_);
  return {{}, std::exchange(left_, {})};
}

void CheckpointTable::downloaded(Step step) {
  if (!settings_.keep) return;
  const store::PruneRule rule = this->rule();
  // Before the pruning, and also those that are on hosts only.
  const std::vector<Step> judged =
      store::steps_to_keep(store::committed_steps(settings_.run), 0, rule.good, rule.best);
  note(store::prune_checkpoints(settings_.run, rule));
  std::vector<Step> kept = fetched_steps();
  // A newer checkpoint was committed meanwhile: its download prunes. Otherwise what is incomplete
  // now was skipped and will not be downloaded.
  if (kept.empty() || kept.front() != step) return;
  kept.insert(kept.end(), judged.begin(), judged.end());
  note(store::prune_all_but(settings_.run, kept));
  prune_hosts(kept);
}

void CheckpointTable::skipped(Step current) {
  if (!settings_.keep) return;
  try {
    const store::PruneRule rule = this->rule();
    // At least two: the newest may still be incomplete on a host that was lost since.
    std::vector<Step> kept =
        store::steps_to_keep(store::committed_steps(settings_.run),
                             std::max<std::int64_t>(rule.keep, 2), rule.good, rule.best);
    kept.push_back(current);
    prune_hosts(kept);
    // Hosts need not have what is complete here.
    for (const Step step : fetched_steps()) kept.push_back(step);
    note(store::prune_all_but(settings_.run, kept));
  } catch (const store::StoreError& error) {
    note({{}, {{settings_.run, error.what()}}});
  }
}

void CheckpointTable::prune_hosts(const std::vector<Step>& kept) {
  const MutexLock lock(mutex_);
  for (const Host& host : hosts_) {
    if (!host.directory.empty()) agent_->prune(host.agent, host.directory, kept);
  }
}

std::vector<Step> CheckpointTable::held_steps() const {
  std::vector<Step> steps;
  for (const Held& one : held_) steps.push_back(one.step);
  return steps;
}

std::vector<Step> CheckpointTable::kept_in_memory() const {
  return store::steps_to_keep(held_steps(), 1, judged_.good);
}

void CheckpointTable::make_room(Step made) {
  const MutexLock lock(mutex_);
  std::vector<Step> kept = {made};
  if (!held_.empty()) {
    const std::vector<Step> steps = held_steps();
    kept.push_back(store::newest_good(steps, judged_.good).value_or(steps.front()));
  }
  prune_memory(kept);
}

std::optional<Step> CheckpointTable::hold(Held made) {
  const MutexLock lock(mutex_);
  if (!held_.empty() && held_.front().on_two && !made.on_two) return held_.front().step;
  held_.insert(held_.begin(), std::move(made));
  prune_memory(kept_in_memory());
  return std::nullopt;
}

void CheckpointTable::prune_memory(const std::vector<Step>& kept) {
  std::erase_if(held_, [&](const Held& one) { return std::ranges::count(kept, one.step) == 0; });
  for (const Host& host : hosts_) {
    if (agent_ == nullptr) {
      store::prune_all_but(host.memory, kept);
    } else {
      agent_->prune(host.agent, host.memory, kept);
    }
  }
}

}  // namespace strait::run
