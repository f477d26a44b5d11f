#include "launcher/worker/memory_shards.h"

#include <optional>
#include <utility>

#include "framework/store/file_progress.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::worker {

MemoryShards::MemoryShards(ControlClient& control)
    : control_(control), held_(std::make_shared<Held>()) {
  control_.on_release([held = held_](store::Step step) {
    std::vector<File> freed;  // freed after the lock is released
    const MutexLock lock(held->mutex);
    if (held->step != step) return;
    held->step.reset();
    freed.swap(held->files);
  });
}

bool MemoryShards::begin(store::Step step) {
  const MutexLock lock(held_->mutex);
  if (held_->step) return false;
  held_->step = step;
  return true;
}

void MemoryShards::hold(store::Step step, std::vector<File> files) {
  run::ShardsInMemory report{step, {}};
  for (const File& file : files) {
    report.shards.push_back({file.summary, file.content->descriptor()});
  }
  {
    const MutexLock lock(held_->mutex);
    held_->files = std::move(files);
  }
  control_.send(report);
}

// Reports the skipped step, so that the coordinator releases it when it knows what all others did.
void MemoryShards::skip(store::Step step, const std::string& why) {
  control_.send(run::ShardsInMemory{step, {}, why});
}

MemoryShards::File copy_to_memory(const std::filesystem::path& folder,
                                  const store::ShardFile& file) {
  const store::InputFile from(folder / file.name);
  MemoryShards::File copy{file, std::make_unique<store::MemoryFile>(file.name)};
  from.each_piece(0, from.size(), store::kFilePiece,
                  [&](auto bytes) { copy.content->write(bytes); });
  const store::FileSummary read = copy.content->seal();
  if (read.hash != file.hash) {
    throw store::StoreError(store::StoreError::Kind::corrupt,
                            from.path().string() + " is not what was written");
  }
  return copy;
}

}  // namespace strait::worker
