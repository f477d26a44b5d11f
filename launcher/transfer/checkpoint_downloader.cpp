#include "launcher/transfer/checkpoint_downloader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/base/byte_text.h"
#include "launcher/base/user_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{100};
constexpr const char* kManifest = "manifest.json";
constexpr std::uint64_t kMostManifest = std::uint64_t{16} << 20;

bool lies_here(const fs::path& path, const store::ShardFile& file) {
  std::error_code error;
  return fs::file_size(path, error) == file.size && !error;
}

}  // namespace

CheckpointDownloader::CheckpointDownloader(TransferAgent& porter, std::vector<Host> hosts, Settings settings)
    : porter_(porter),
      settings_(std::move(settings)),
      hosts_(std::move(hosts)),
      thread_([this] { run(); }) {}

CheckpointDownloader::~CheckpointDownloader() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointDownloader::keeps_at(std::size_t host, const fs::path& directory) {
  const MutexLock lock(mutex_);
  hosts_.at(host).directory = directory;
}

std::vector<CheckpointDownloader::Host> CheckpointDownloader::known_hosts() const {
  const MutexLock lock(mutex_);
  std::vector<Host> known = hosts_;
  std::erase_if(known, [](const Host& host) { return host.directory.empty(); });
  return known;
}

void CheckpointDownloader::committed(store::Step step, std::vector<Shard> shards) {
  {
    const MutexLock lock(mutex_);
    std::optional<Load> load = Load{step, std::move(shards)};
    if (under_way_) {
      next_ = std::move(load);
    } else {
      begin(std::move(load));
    }
  }
  changed_.notify_all();
}

std::string CheckpointDownloader::finish(const std::function<bool(const Left&)>& give_up) {
  const MutexLock lock(mutex_);
  while (under_way_ && !give_up(left())) {
    changed_.wait_until(mutex_, Clock::now() + kLookEvery);
  }
  if (!under_way_) return missing_;
  return fmt::format("{} of checkpoint {} stay on the hosts, where `strait resume` finds them",
                     base::byte_text(left().bytes), number(left().step));
}

void CheckpointDownloader::begin(std::optional<Load> load) {
  under_way_ = std::move(load);
  begin_counting(0);
}

void CheckpointDownloader::begin_counting(std::uint64_t home) {
  home_ = home;
  fetched_ = porter_.state().fetched_bytes;
}

CheckpointDownloader::Left CheckpointDownloader::left() const {
  Left left;
  for (const auto* load : {&under_way_, &next_}) {
    if (!*load) continue;
    left.step = (*load)->step;
    for (const Shard& shard : (*load)->shards) left.bytes += shard.file.size;
  }
  const std::uint64_t came = home_ + porter_.state().fetched_bytes - fetched_;
  left.bytes -= std::min(left.bytes, came);
  return left;
}

std::vector<std::string> CheckpointDownloader::take_troubles() {
  const MutexLock lock(mutex_);
  return std::exchange(troubles_, {});
}

void CheckpointDownloader::run() {
  while (true) {
    Load load;
    {
      const MutexLock lock(mutex_);
      while (!under_way_ && !closing_) changed_.wait(mutex_);
      if (closing_) return;
      load = *under_way_;
    }
    const std::string missing = carry(load);
    {
      const MutexLock lock(mutex_);
      missing_ = missing;
      if (!missing.empty()) {
        troubles_.push_back(fmt::format("checkpoint {} is not complete on this machine: {}",
                                        number(load.step), missing));
      }
      begin(std::exchange(next_, std::nullopt));
    }
    changed_.notify_all();
  }
}

bool CheckpointDownloader::given_up(std::size_t host) const {
  const MutexLock lock(mutex_);
  if (closing_ || !next_) return closing_;
  const auto writes_there = [host](const Shard& shard) { return shard.host == host; };
  return std::none_of(next_->shards.begin(), next_->shards.end(), writes_there);
}

template <class T>
std::optional<T> CheckpointDownloader::wait(std::future<T>& future, std::size_t host) const {
  while (future.wait_for(kLookEvery) != std::future_status::ready) {
    if (given_up(host)) return std::nullopt;
  }
  return future.get();
}

std::string CheckpointDownloader::carry(const Load& load) {
  std::string missing;
  try {
    place_manifest(load.step);
    for (const Shard& shard : load.shards) {
      const std::string why = carry_one(load, shard);
      if (!why.empty()) missing += (missing.empty() ? "" : "; ") + why;
      const MutexLock lock(mutex_);
      begin_counting(home_ + shard.file.size);
    }
    if (missing.empty() && !closing_) let_go(load.step);
  } catch (const store::StoreError& error) {
    return error.what();
  }
  return missing;
}

CheckpointDownloader::Host CheckpointDownloader::host_at(std::size_t host) const {
  const MutexLock lock(mutex_);
  return hosts_.at(host);
}

std::string CheckpointDownloader::carry_one(const Load& load, const Shard& shard) {
  const fs::path here = store::checkpoint_directory(settings_.run, load.step) / shard.file.name;
  if (lies_here(here, shard.file)) return "";
  const Host host = host_at(shard.host);
  std::string given_up =
      fmt::format("{} of host {} was not waited for", shard.file.name, host.name);
  const fs::path there = store::checkpoint_directory(host.directory, load.step) / shard.file.name;
  try {
    auto looked = porter_.look(host.keeper, there);
    const std::optional<ChunkTable> table = wait(looked, shard.host);
    if (!table) return given_up;
    if (table->size != shard.file.size || table->whole != shard.file.hash) {
      return fmt::format("{} on host {} is not what was written", there.string(), host.name);
    }
    auto fetching =
        porter_.fetch({*table, ChunkSet::all(table->count()), here, FetchRequest::As::file});
    if (wait(fetching.fetched, shard.host)) return "";
    porter_.forget(fetching.number);
    return given_up;
  } catch (const base::UserError& error) {
    return fmt::format("{} of host {} ({})", shard.file.name, host.name, error.what());
  }
}

void CheckpointDownloader::place_manifest(store::Step step) {
  const std::string text = store::read_text_file(
      store::checkpoint_directory(settings_.run, step) / kManifest, kMostManifest);
  for (const Host& host : known_hosts()) {
    // Nobody waits: it tells people on that host what their shards belong to.
    porter_.put(host.keeper, store::checkpoint_directory(host.directory, step) / kManifest, text);
  }
}

void CheckpointDownloader::let_go(store::Step home) {
  store::prune_checkpoints(settings_.run, settings_.keep);
  std::vector<store::Step> kept;
  std::vector<std::uint64_t> steps;
  for (const store::Checkpoint& checkpoint : store::list_checkpoints(settings_.run).complete) {
    kept.push_back(checkpoint.manifest.step);
    steps.push_back(static_cast<std::uint64_t>(number(checkpoint.manifest.step)));
  }
  // Those that were passed over never come; newer ones than this stay.
  if (kept.empty() || kept.front() != home) return;
  store::prune_all_but(settings_.run, kept);
  for (const Host& host : known_hosts()) porter_.prune(host.keeper, host.directory, steps);
}

}  // namespace strait::transfer
