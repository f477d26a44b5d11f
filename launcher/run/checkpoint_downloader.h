#pragma once

#include "launcher/base/errors.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/checkpoint_table.h"

namespace strait::run {

// Fetches a shard from this path of a host to a path here. `poll` throws to give up. UserError,
// StoreError: it did not come; `corrupt`: the host does not have the bytes of the shard any more.
void fetch_shard(transfer::TransferAgent& agent, const net::ProcessName& host,
                 const std::filesystem::path& there, const store::ShardFile& shard,
                 const std::filesystem::path& here, const std::function<void()>& poll);

// Downloads the shards of committed checkpoints from the hosts in the background, so that a lost
// host takes no checkpoint along. One checkpoint after the other; of several that are committed
// during a download only the newest comes next, so that the first and the last of a run are always
// downloaded. A host that the newest checkpoint has no shards of has left the run and is not waited
// for. Weights come first.
class CheckpointDownloader {
 public:
  struct Settings {
    // Of the newest checkpoint, in finish(); at most what is fetched of every one.
    store::Part awaited = store::Part::all;
    // finish() waits so long for a byte: longer than a host reads a shard to see what it is.
    std::chrono::seconds stall_timeout{1800};
  };

  // The table, which has an agent, outlives this object.
  CheckpointDownloader(CheckpointTable& table, Settings settings);
  ~CheckpointDownloader();  // interrupts the download
  CheckpointDownloader(const CheckpointDownloader&) = delete;
  CheckpointDownloader& operator=(const CheckpointDownloader&) = delete;

  // A checkpoint was committed: its manifest is here.
  void add(store::Step step, const std::vector<plan::WrittenShard>& shards) STRAIT_EXCLUDES(mutex_);

  // A message for each checkpoint that could not be downloaded, since the last call.
  std::vector<std::string> take_warnings() STRAIT_EXCLUDES(mutex_);

  struct Remaining {
    store::Step step{};  // of the newest checkpoint
    std::uint64_t bytes = 0;
  };
  // Of the newest checkpoint; empty: nothing.
  struct Finished {
    std::string missing;  // could not be fetched
    std::string left;     // stays on hosts, as the settings say
    // Why it could not be fetched: `corrupt` where no host has it any more, so that trying again
    // does not help.
    base::ExitCode code = base::ExitCode::done;
  };
  // Waits until the awaited part of the newest checkpoint is here, while it comes; no more is
  // fetched from now on. `give_up` is called repeatedly and ends the wait; it must not call this
  // object.
  Finished finish(const std::function<bool(const Remaining&)>& give_up) STRAIT_EXCLUDES(mutex_);

 private:
  struct Shard {
    store::ShardFile file;
    std::size_t host = 0;
    bool weights = false;
  };
  struct Download {
    store::Step step{};
    std::vector<Shard> shards;  // weights first
    std::size_t done = 0;       // of them
  };

  void run() STRAIT_EXCLUDES(mutex_);
  void begin(std::optional<Download> download) STRAIT_REQUIRES(mutex_);
  bool wanted(const Shard& shard) const STRAIT_REQUIRES(mutex_);
  Remaining remaining() const STRAIT_REQUIRES(mutex_);
  std::string left_of(const Download& download) const STRAIT_REQUIRES(mutex_);
  // Both return what is missing, and why; without text: nothing.
  base::Failure download(const Download& download) STRAIT_EXCLUDES(mutex_);
  base::Failure download_shard(store::Step step, const Shard& shard) STRAIT_EXCLUDES(mutex_);
  void send_manifest(store::Step step) STRAIT_EXCLUDES(mutex_);
  bool given_up(const Shard& shard) const STRAIT_EXCLUDES(mutex_);

  CheckpointTable& table_;
  transfer::TransferAgent& agent_;
  const Settings settings_;
  std::atomic<bool> closing_ = false;
  mutable Mutex mutex_;
  Condition changed_;
  std::optional<Download> current_ STRAIT_GUARDED_BY(mutex_);
  std::optional<Download> next_ STRAIT_GUARDED_BY(mutex_);
  // What the agent had fetched in all when the current shard began.
  std::uint64_t fetched_before_ STRAIT_GUARDED_BY(mutex_) = 0;
  bool finishing_ STRAIT_GUARDED_BY(mutex_) = false;
  // Of the last download.
  Finished last_ STRAIT_GUARDED_BY(mutex_);
  std::vector<std::string> warnings_ STRAIT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strait::run
