#include "launcher/run/local_memory_checkpoints.h"

#include <algorithm>
#include <utility>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint_files.h"
#include "framework/store/memory_file.h"
#include "framework/store/store_error.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

void write_copy(const FileDescriptor& content, const store::ShardFile& file, const fs::path& path) {
  const store::FileSummary written =
      store::copy_file(store::descriptor_path(content.number()), path);
  if (written.size == file.size && written.hash == file.hash) return;
  throw store::StoreError(store::StoreError::Kind::corrupt,
                          file.name + " in memory is not what its process wrote");
}

}  // namespace

void LocalMemoryCheckpoints::hold(store::Step step, std::vector<MemoryPart> parts) {
  Content next{{step, {}}, {}};
  try {
    for (const MemoryPart& part : parts) {
      for (const MemoryShard& shard : part.shards) {
        next.files.push_back(
            store::open_sealed(store::descriptor_path(part.pid, shard.descriptor)));
        next.held.files.push_back(shard.file);
      }
    }
  } catch (const store::StoreError& error) {
    decisions_.push_back(
        {step, "", std::string("a checkpoint is not held in memory: ") + error.what()});
    return;
  }
  contents_.insert(contents_.begin(), std::move(next));
  drop_what_is_not_needed();
  decisions_.push_back({step, "the launcher", ""});
}

void LocalMemoryCheckpoints::judge(const LossHistory& losses) {
  losses_ = losses;
  drop_what_is_not_needed();
}

void LocalMemoryCheckpoints::drop_what_is_not_needed() {
  std::vector<store::Step> steps;
  for (const Content& one : contents_) steps.push_back(one.held.step);
  const std::vector<store::Step> needed = needed_in_memory(steps, losses_);
  std::erase_if(contents_, [&needed](const Content& one) {
    return std::ranges::find(needed, one.held.step) == needed.end();
  });
}

std::vector<MemoryDecision> LocalMemoryCheckpoints::take_decisions() {
  return std::exchange(decisions_, {});
}

std::vector<MemoryCheckpoints::Held> LocalMemoryCheckpoints::end_and_list() {
  std::vector<Held> all;
  for (const Content& one : contents_) all.push_back(one.held);
  return all;
}

void LocalMemoryCheckpoints::save(const Held& one, const fs::path& folder,
                                  const std::function<bool()>& /*give_up*/) {
  store::make_directory(folder);
  const auto content =
      std::ranges::find(contents_, one.step, [](const Content& each) { return each.held.step; });
  for (std::size_t i = 0; i < one.files.size(); ++i) {
    const fs::path path = folder / one.files[i].name;
    if (store::has_size(path, one.files[i].size)) continue;
    write_copy(content->files.at(i), one.files[i], path);
  }
}

}  // namespace strait::run
