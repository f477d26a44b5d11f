#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/mutex.h"
#include "framework/store/manifest.h"
#include "framework/store/memory_file.h"
#include "framework/store/sample.h"
#include "launcher/worker/control_client.h"

namespace strait::worker {

// This process's shards of one checkpoint in memory, until the coordinator releases them because
// others hold them or the checkpoint is given up. One checkpoint at a time: on a path that is
// slower than the interval the next ones are skipped, so training never waits.
//
// Call hold() or skip() once for every step of checkpoint.memory_every. Any thread.
class MemoryShards {
 public:
  explicit MemoryShards(ControlClient& control);
  MemoryShards(const MemoryShards&) = delete;
  MemoryShards& operator=(const MemoryShards&) = delete;
  ~MemoryShards() = default;

  // False: the former checkpoint is not released yet. After true, hold() or skip() must follow.
  bool begin(store::Step step);
  // Reports the files; their descriptors stay open until they are released.
  struct File {
    store::ShardFile summary;
    std::unique_ptr<store::MemoryFile> content;
  };
  void hold(store::Step step, std::vector<File> files);
  void skip(store::Step step, const std::string& why);

 private:
  // Shared with the control thread, which may release after this object has ended.
  struct Held {
    Mutex mutex;
    std::optional<store::Step> step STRAIT_GUARDED_BY(mutex);
    std::vector<File> files STRAIT_GUARDED_BY(mutex);
  };

  ControlClient& control_;
  const std::shared_ptr<Held> held_;
};

// Copies a file on disk to memory. StoreError.
MemoryShards::File copy_to_memory(const std::filesystem::path& folder,
                                  const store::ShardFile& file);

}  // namespace strait::worker
