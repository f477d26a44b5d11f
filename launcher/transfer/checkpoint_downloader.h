#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/mutex.h"
#include "framework/store/checkpoint.h"
#include "launcher/transfer/transfer_agent.h"

namespace strait::transfer {

// Downloads the shards of committed checkpoints from the hosts in the background, so that a lost
// host takes no checkpoint along. One checkpoint after the other; of several that are committed
// during a download only the newest comes next, so that the first and the last of a run are always
// downloaded. A finished download prunes older checkpoints here and on the hosts. A host that the
// newest checkpoint has no shards of has left the run and is not waited for.
class CheckpointDownloader {
 public:
  struct Host {
    std::string name;
    net::ProcessName agent;
    std::filesystem::path directory;  // of the run on that host; empty: not known (yet)
  };
  struct Shard {
    store::ShardFile file;
    std::size_t host = 0;
  };
  struct Settings {
    std::filesystem::path run;             // the run directory here
    std::optional<std::int64_t> keep = 2;  // checkpoints; absent: nothing is pruned
  };

  // The agent outlives this object.
  CheckpointDownloader(TransferAgent& agent, std::vector<Host> hosts, Settings settings);
  ~CheckpointDownloader();  // interrupts the download
  CheckpointDownloader(const CheckpointDownloader&) = delete;
  CheckpointDownloader& operator=(const CheckpointDownloader&) = delete;

  // The host's run directory from now on.
  void set_directory(std::size_t host, const std::filesystem::path& directory)
      STRAIT_EXCLUDES(mutex_);

  // A checkpoint was committed: its manifest is here.
  void add(store::Step step, std::vector<Shard> shards) STRAIT_EXCLUDES(mutex_);

  // A message for each checkpoint that could not be downloaded, and for each old one that could not
  // be removed, since the last call.
  std::vector<std::string> take_warnings() STRAIT_EXCLUDES(mutex_);

  struct Remaining {
    store::Step step{};  // of the newest checkpoint
    std::uint64_t bytes = 0;
  };
  // Waits until the newest checkpoint is complete here. Returns what is missing; empty: nothing.
  // `give_up` is called repeatedly and ends the wait; it must not call this object.
  std::string finish(const std::function<bool(const Remaining&)>& give_up) STRAIT_EXCLUDES(mutex_);

 private:
  struct Download {
    store::Step step{};
    std::vector<Shard> shards;
  };

  void run() STRAIT_EXCLUDES(mutex_);
  void begin(std::optional<Download> download) STRAIT_REQUIRES(mutex_);
  void begin_shard(std::uint64_t done) STRAIT_REQUIRES(mutex_);
  Remaining remaining() const STRAIT_REQUIRES(mutex_);
  // Both return what is missing; empty: nothing.
  std::string download(const Download& download) STRAIT_EXCLUDES(mutex_);
  std::string download_shard(store::Step step, const Shard& shard) STRAIT_EXCLUDES(mutex_);
  void send_manifest(store::Step step) STRAIT_EXCLUDES(mutex_);
  void prune(store::Step downloaded) STRAIT_EXCLUDES(mutex_);
  // A warning for each folder that cannot be removed, once.
  void warn_of(const store::Pruned& pruned) STRAIT_EXCLUDES(mutex_);
  Host host_at(std::size_t host) const STRAIT_EXCLUDES(mutex_);
  std::vector<Host> known_hosts() const STRAIT_EXCLUDES(mutex_);
  // Nothing: not to be waited for any more.
  template <class T>
  std::optional<T> wait(std::future<T>& future, std::size_t host) const STRAIT_EXCLUDES(mutex_);
  bool given_up(std::size_t host) const STRAIT_EXCLUDES(mutex_);

  TransferAgent& agent_;
  const Settings settings_;
  std::atomic<bool> closing_ = false;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<Host> hosts_ STRAIT_GUARDED_BY(mutex_);
  std::optional<Download> current_ STRAIT_GUARDED_BY(mutex_);
  std::optional<Download> next_ STRAIT_GUARDED_BY(mutex_);
  // Bytes of the shards of current_ that are done.
  std::uint64_t done_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  // What the agent had fetched in all when the current shard began.
  std::uint64_t fetched_before_ STRAIT_GUARDED_BY(mutex_) = 0;
  // Of the last download.
  std::string missing_ STRAIT_GUARDED_BY(mutex_);
  std::vector<std::string> warnings_ STRAIT_GUARDED_BY(mutex_);
  // On thread_ only.
  std::set<std::filesystem::path> not_pruned_;
  std::thread thread_;
};

}  // namespace strait::transfer
