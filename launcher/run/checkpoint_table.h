#pragma once

#include "framework/mutex.h"
#include "framework/store/checkpoint.h"
#include "launcher/hosts/transfer_agent.h"

namespace strait::run {

// Where the checkpoints of a run are, and which of them stay: on the disk of this machine, on the
// disks of hosts, and in memory. Every pruning of a launch is decided here, so that no place loses
// what another one counts on. Neither the newest that is known to be good is ever removed from the
// disks, nor the best. Any thread.
class CheckpointTable {
 public:
  struct Host {
    std::string name;
    net::ProcessName agent;
    std::filesystem::path directory;  // of the run on that host; empty: not known (yet)
    std::filesystem::path memory;     // of its own checkpoints in memory and its neighbour's
  };
  struct Settings {
    std::filesystem::path run;               // the run directory here
    std::optional<std::int64_t> keep = 2;    // checkpoints; absent: no disk is pruned
    store::Part fetched = store::Part::all;  // of every checkpoint, to this machine
  };
  // In memory: on the hosts that wrote it or, `on_two`, on the neighbour of each of them, too.
  struct Held {
    store::Step step{};
    std::vector<store::ShardFile> files;
    bool on_two = false;
  };

  // `agent` outlives this object. Null: all processes write to this machine, the only one of
  // `hosts`.
  CheckpointTable(Settings settings, std::vector<Host> hosts, transfer::TransferAgent* agent)
      : settings_(std::move(settings)), agent_(agent), hosts_(std::move(hosts)) {}

  const Settings& settings() const { return settings_; }
  transfer::TransferAgent* agent() const { return agent_; }
  std::vector<Host> hosts() const STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return hosts_;
  }
  // The host's run directory from now on.
  void set_directory(std::size_t host, const std::filesystem::path& directory)
      STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    hosts_.at(host).directory = directory;
  }
  // Of a checkpoint.
  std::filesystem::path folder_here(store::Step step) const {
    return store::checkpoint_directory(settings_.run, step);
  }
  std::filesystem::path folder_in_memory(store::Step step, std::size_t host) const {
    return store::checkpoint_directory(hosts().at(host).memory, step);
  }

  // Checkpoints of this step and of earlier ones are known to be good.
  void judge(std::optional<store::Step> good, store::BestRule best) STRAIT_EXCLUDES(mutex_);

  // At a start, and after every commit. Over hosts a commit prunes nothing: until a checkpoint has
  // been fetched, older ones are the newest that are complete here. Then this returns what other
  // prunings since the last call could not remove.
  store::Pruned prune(store::PruneTime time) STRAIT_EXCLUDES(mutex_);
  // What is fetched of this checkpoint is here: older ones go, here and on the hosts.
  void downloaded(store::Step step) STRAIT_EXCLUDES(mutex_);
  // A commit came before the download of another one began, which is skipped, while `current` is
  // fetched. While a download takes longer than the steps between commits, hosts would keep them
  // all.
  void skipped(store::Step current) STRAIT_EXCLUDES(mutex_);

  // Memory has room for two: keeps one other while `made` is copied to neighbours.
  void make_room(store::Step made) STRAIT_EXCLUDES(mutex_);
  // Nullopt: it is held, and older ones go. Otherwise the step of the one that stays instead: it is
  // on two hosts, and the loss of one host would take the new one along.
  std::optional<store::Step> hold(Held made) STRAIT_EXCLUDES(mutex_);
  // Newest first.
  std::vector<Held> held() const STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return held_;
  }

 private:
  store::PruneRule rule() const STRAIT_EXCLUDES(mutex_);
  std::vector<store::Step> fetched_steps() const;
  void note(const store::Pruned& pruned) STRAIT_EXCLUDES(mutex_);
  // Of steps that are older than the newest of these. Known hosts only.
  void prune_hosts(const std::vector<store::Step>& kept) STRAIT_EXCLUDES(mutex_);
  std::vector<store::Step> held_steps() const STRAIT_REQUIRES(mutex_);
  // The newest, and the newest that is known to be good.
  std::vector<store::Step> kept_in_memory() const STRAIT_REQUIRES(mutex_);
  void prune_memory(const std::vector<store::Step>& kept) STRAIT_REQUIRES(mutex_);

  const Settings settings_;
  transfer::TransferAgent* const agent_;
  mutable Mutex mutex_;
  std::vector<Host> hosts_ STRAIT_GUARDED_BY(mutex_);
  store::PruneRule judged_ STRAIT_GUARDED_BY(mutex_);
  std::vector<Held> held_ STRAIT_GUARDED_BY(mutex_);  // newest first
  std::vector<store::Pruned::Left> left_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::run
