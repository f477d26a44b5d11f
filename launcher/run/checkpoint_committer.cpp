#include "launcher/run/checkpoint_committer.h"

namespace strait::run {

bool CheckpointCommitter::is_current(store::Step step, std::uint32_t epoch) {
  if (epoch == membership_.epoch()) return true;
  // A replica left after this checkpoint was begun. Its writers wait for a decision, which is sent
  // once.
  if (ledger_.outdated(step, epoch)) request_again(step, epoch);
  return false;
}

void CheckpointCommitter::request_again(store::Step step, std::uint32_t epoch) {
  workers_.broadcast(
      CheckpointDecided{step, epoch, "a replica left while it was written", /*again=*/true});
}

std::optional<Finding> CheckpointCommitter::apply_changes() const {
  if (!options_.apply_changes) return std::nullopt;
  try {
    options_.apply_changes();
    return std::nullopt;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failed_save(error);
    return Finding{std::nullopt, failure.code, "the launcher: " + failure.text};
  }
}

CheckpointCommitter::Result CheckpointCommitter::add(const Worker& from,
                                                     const ShardsWritten& shards, bool aborting) {
  if (!is_current(shards.step, shards.epoch)) return {};
  if (shards.failed) {
    // The first failed process drops the checkpoint; further failures change nothing.
    if (!ledger_.failed(shards.step, shards.epoch)) return {};
    return drop(shards.step, {from.handle.name, shards.code, from.sentence_about(shards.problem)});
  }
  const auto files = ledger_.written(from.handle.name, shards);
  if (!files || aborting) return {};
  return commit(shards.step, *files);
}

CheckpointCommitter::Result CheckpointCommitter::commit(
    store::Step step, const std::vector<store::ShardFile>& files) {
  try {
    options_.commit(step, files);
  } catch (const std::exception& error) {
    // Marked as failed before it is dropped, so that a late part does not complete it.
    ledger_.failed(step, membership_.epoch());
    const base::Failure failure = base::describe_failed_save(error);
    return drop(step, {std::nullopt, failure.code, "the launcher: " + failure.text});
  }
  // Only failures in a row end the run.
  missed_ = 0;
  last_drop_.reset();
  last_ = step;
  observers_.notify(&RunObserver::checkpointed, step);
  return {CheckpointDecided{step, membership_.epoch()}};
}

CheckpointCommitter::Result CheckpointCommitter::drop(store::Step step, const Finding& why) {
  ++missed_;
  last_drop_ = why;
  workers_.broadcast(CheckpointDecided{step, membership_.epoch(), why.sentence});
  observers_.notify(&RunObserver::checkpoint_failed, step, why.sentence);
  return {.dropped = true};
}

void CheckpointCommitter::prune(store::PruneTime time) {
  if (!options_.prune) return;
  store::Pruned pruned;
  try {
    pruned = options_.prune(time);
  } catch (const std::exception& error) {
    // Old checkpoints take only space, so an error here does not end the run.
    pruned.left.push_back({"", base::describe_failure(error).text});
  }
  for (const store::Pruned::Left& one : pruned.left) {
    // Each folder is reported once; pruning tries it again after every commit.
    if (!not_pruned_.insert(one.path).second) continue;
    observers_.launcher_event(
        {"not_pruned", fmt::format("an old checkpoint stays and takes room: {}. "
                                   "The run continues; remove it by hand",
                                   one.reason)});
  }
}

std::optional<Finding> CheckpointCommitter::too_many_missed() const {
  if (missed_ < options_.missed_checkpoints) return std::nullopt;
  return Finding{last_drop_->process, last_drop_->code,
                 fmt::format("{} checkpoints in a row could not be written; {}", missed_,
                             last_drop_->sentence)};
}

std::size_t CheckpointCommitter::members() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      workers_.all(), [&](const Worker& one) { return membership_.has(one.handle.name.replica); }));
}

void CheckpointCommitter::on_replica_left(std::uint32_t former) {
  for (const store::Step step : ledger_.regroup(membership_.epoch(), members())) {
    request_again(step, former);
  }
}

void CheckpointCommitter::on_replica_joined() { ledger_.regroup(membership_.epoch(), members()); }

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

void MemoryLedger::add(const Worker& from, const ShardsWritten& shards) {
  Open& open = open_[shards.step];
  const net::ProcessName name = from.handle.name;
  if (!open.parts.emplace(name, shards.files).second) {
    throw base::MessageError(fmt::format("{} reported its part of checkpoint {} in memory twice",
                                         name.describe(), store::number(shards.step)));
  }
  open.skipped = open.skipped || shards.failed;
  if (!shards.problem.empty()) open.problem = from.sentence_about(shards.problem);
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
  CheckpointDecided decided{decision.step};
  decided.in_memory = true;
  if (!kept) decided.dropped = decision.problem;
  workers_.broadcast(decided);
  if (kept) observers_.notify(&RunObserver::in_memory, decision.step, decision.place);
  if (quiet || decision.problem.empty() || decision.problem == problem_) return;
  problem_ = decision.problem;
  observers_.launcher_event({"not_in_memory", decision.problem});
}

}  // namespace strait::run
