#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "framework/mutex.h"
#include "framework/store/checkpoint.h"
#include "launcher/transfer/transfer_agent.h"

namespace strait::transfer {

// Brings checkpoints whose shards were written on other hosts home, in the background, so that a
// host that dies takes nothing along. One after the other; if several are committed while one is
// on its way, only the newest of those comes next: the first and the last of a run always come.
// What has come home, or was passed over, lets older ones go, here and on the hosts. Nobody waits
// for a host that the newest checkpoint has nothing of: its processes take no part any more.
class CheckpointDownloader {
 public:
  struct Host {
    std::string name;
    net::ProcessName keeper;
    std::filesystem::path directory;  // of the run, there; empty: not known (yet)
  };
  struct Shard {
    store::ShardFile file;
    std::size_t host = 0;
  };
  struct Settings {
    std::filesystem::path run;  // its directory here
    std::int64_t keep = 2;
  };

  // The porter outlives it.
  CheckpointDownloader(TransferAgent& porter, std::vector<Host> hosts, Settings settings);
  ~CheckpointDownloader();  // leaves what is under way where it is
  CheckpointDownloader(const CheckpointDownloader&) = delete;
  CheckpointDownloader& operator=(const CheckpointDownloader&) = delete;

  // From now on a host keeps the run in this directory.
  void keeps_at(std::size_t host, const std::filesystem::path& directory) STRAIT_EXCLUDES(mutex_);

  // The checkpoint exists: its manifest is here.
  void committed(store::Step step, std::vector<Shard> shards) STRAIT_EXCLUDES(mutex_);

  // What could not come home since the last call, a sentence each.
  std::vector<std::string> take_troubles() STRAIT_EXCLUDES(mutex_);

  // What has still to come: up to this checkpoint, so many bytes.
  struct Left {
    store::Step step{};
    std::uint64_t bytes = 0;
  };
  // Waits until the newest is home, or cannot come: then what is missing, in words. `give_up` is
  // asked again and again and ends the waiting; it calls nothing of this object.
  std::string finish(const std::function<bool(const Left&)>& give_up) STRAIT_EXCLUDES(mutex_);

 private:
  struct Load {
    store::Step step{};
    std::vector<Shard> shards;
  };

  void run() STRAIT_EXCLUDES(mutex_);
  // From now on it is under way, and nothing of it has come.
  void begin(std::optional<Load> load) STRAIT_REQUIRES(mutex_);
  void begin_counting(std::uint64_t home) STRAIT_REQUIRES(mutex_);
  Left left() const STRAIT_REQUIRES(mutex_);
  std::string carry(const Load& load) STRAIT_EXCLUDES(mutex_);
  std::string carry_one(const Load& load, const Shard& shard) STRAIT_EXCLUDES(mutex_);
  void place_manifest(store::Step step) STRAIT_EXCLUDES(mutex_);
  void let_go(store::Step home) STRAIT_EXCLUDES(mutex_);
  Host host_at(std::size_t host) const STRAIT_EXCLUDES(mutex_);
  std::vector<Host> known_hosts() const STRAIT_EXCLUDES(mutex_);
  // Nothing: it is not to be waited for any more.
  template <class T>
  std::optional<T> wait(std::future<T>& future, std::size_t host) const STRAIT_EXCLUDES(mutex_);
  bool given_up(std::size_t host) const STRAIT_EXCLUDES(mutex_);

  TransferAgent& porter_;
  const Settings settings_;
  std::atomic<bool> closing_ = false;
  mutable Mutex mutex_;
  std::vector<Host> hosts_ STRAIT_GUARDED_BY(mutex_);
  Condition changed_;
  std::optional<Load> under_way_ STRAIT_GUARDED_BY(mutex_);
  std::optional<Load> next_ STRAIT_GUARDED_BY(mutex_);
  std::uint64_t home_ STRAIT_GUARDED_BY(mutex_) = 0;     // bytes of shards under way that are done
  std::uint64_t fetched_ STRAIT_GUARDED_BY(mutex_) = 0;  // by the porter, before the current shard
  std::string missing_ STRAIT_GUARDED_BY(mutex_);        // of the last one
  std::vector<std::string> troubles_ STRAIT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strait::transfer
