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

// This process's shards of one checkpoint in memory, from their beginning until the coordinator
// releases them: then others hold them, or it is given up. One at a time: on a path that is slower
// than the interval the next ones are skipped, and training waits for none.
//
// Every step of checkpoint.memory_every has one call of hold() or skip(). Any thread.
class MemoryShards {
 public:
  explicit MemoryShards(ControlClient& control);
  MemoryShards(const MemoryShards&) = delete;
  MemoryShards& operator=(const MemoryShards&) = delete;
  ~MemoryShards() = default;

  // False: the former one is not released yet. True: hold() or skip() has to follow.
  bool begin(store::Step step);
  // Reports the files; their descriptors stay open until they are released.
  struct File {
    store::ShardFile summary;
    std::unique_ptr<store::MemoryFile> content;
  };
  void hold(store::Step step, std::vector<File> files);
  void skip(store::Step step, const std::string& why);

 private:
  // Shared with the control thread, which may release after the end of this object.
  struct Held {
    Mutex mutex;
    std::optional<store::Step> step STRAIT_GUARDED_BY(mutex);
    std::vector<File> files STRAIT_GUARDED_BY(mutex);
  };

  ControlClient& control_;
  const std::shared_ptr<Held> held_;
};

// The file on disk as one in memory. StoreError.
MemoryShards::File copy_to_memory(const std::filesystem::path& folder,
                                  const store::ShardFile& file);

}  // namespace strait::worker
