#include "launcher/run/checkpoint_downloader.h"

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/base/text.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A stop request during the last downloads is noticed at once by a user.
constexpr std::chrono::milliseconds kPollInterval{100};

// One more that is missing. What is lost for good decides: fetching the others again will not help.
void add_missing(base::Failure& all, const base::Failure& one) {
  if (all.text.empty() || one.code == base::ExitCode::corrupt) all.code = one.code;
  all.text += (all.text.empty() ? "" : "; ") + one.text;
}

}  // namespace

void fetch_shard(transfer::TransferAgent& agent, const net::ProcessName& host,
                 const fs::path& there, const store::ShardFile& shard, const fs::path& here,
                 const std::function<void()>& poll) {
  std::future<transfer::ChunkTable> answer = agent.stat(host, there);
  transfer::ChunkTable table;
  try {
    table = transfer::wait_for(answer, poll);
  } catch (const base::UserError& error) {
    if (error.code() != base::ExitCode::bad_input) throw;
    throw base::UserError(base::ExitCode::corrupt, error.what());  // no file
  }
  if (table.size != shard.size || table.whole != shard.hash) {
    throw base::UserError(base::ExitCode::corrupt,
                          there.string() + " has changed since it was written");
  }
  try {
    agent.fetch(
        {table, transfer::ChunkSet::all(table.count()), here, transfer::FetchRequest::As::file},
        {host}, poll);
  } catch (const store::StoreError& error) {
    if (error.kind() != store::StoreError::Kind::corrupt) throw;
    // A file here is damaged, while the host has the right one.
    throw store::StoreError(store::StoreError::Kind::storage_io, error.what());
  }
}

CheckpointDownloader::CheckpointDownloader(CheckpointTable& table, Settings settings)
    : table_(table), agent_(*table.agent()), settings_(settings), thread_([this] { run(); }) {}

CheckpointDownloader::~CheckpointDownloader() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointDownloader::add(store::Step step, const std::vector<plan::WrittenShard>& shards) {
  store::Manifest manifest;
  for (const plan::WrittenShard& shard : shards) manifest.files.push_back(shard.file);
  const std::vector<store::ShardFile> weights = store::files_of(manifest, store::Part::weights);
  std::optional<Download> download = Download{step, {}, 0};
  for (const plan::WrittenShard& shard : shards) {
    const bool is_weights = std::ranges::find(weights, shard.file) != weights.end();
    download->shards.push_back({shard.file, shard.host, is_weights});
  }
  // Stable: shards of one kind stay in the order of the processes, as the manifest lists them.
  std::stable_partition(download->shards.begin(), download->shards.end(),
                        [](const Shard& shard) { return shard.weights; });
  std::optional<store::Step> current;  // of the download during which another one is skipped
  {
    const MutexLock lock(mutex_);
    if (next_) current = current_->step;
    // Only the newest one waits: on a path that is slower than the commits the queue would grow
    // without end.
    if (current_) {
      next_ = std::move(download);
    } else {
      begin(std::move(download));
    }
  }
  changed_.notify_all();
  if (current) table_.skipped(*current);
}

CheckpointDownloader::Finished CheckpointDownloader::finish(
    const std::function<bool(const Remaining&)>& give_up) {
  const MutexLock lock(mutex_);
  finishing_ = true;
  std::uint64_t bytes = 0;
  auto came = Clock::now();
  bool stalled = false;
  while (current_ && !stalled) {
    const Remaining now = remaining();
    if (give_up(now)) break;
    // Bytes and not checkpoints: a large shard on a slow path is progress, too.
    if (std::exchange(bytes, now.bytes) != now.bytes) came = Clock::now();
    stalled = Clock::now() - came >= settings_.stall_timeout;
    changed_.wait_until(mutex_, Clock::now() + kPollInterval);
  }
  if (!current_) return last_;
  const std::string left =
      fmt::format("{} of checkpoint {} stay on the hosts, where `strait resume` finds them",
                  base::byte_text(remaining().bytes), number(remaining().step));
  if (!stalled) return {left, "", base::ExitCode::interrupted};
  return {fmt::format("{}: no data for {} s", left, settings_.stall_timeout.count()), "",
          base::ExitCode::stalled};
}

bool CheckpointDownloader::wanted(const Shard& shard) const {
  const store::Part part = finishing_ ? settings_.awaited : table_.settings().fetched;
  return shard.weights ? part != store::Part::none : part == store::Part::all;
}

std::string CheckpointDownloader::left_of(const Download& download) const {
  std::uint64_t bytes = 0;
  std::set<std::string> names;
  bool weights = false;
  for (const Shard& shard : download.shards) {
    const fs::path here = table_.folder_here(download.step) / shard.file.name;
    if (wanted(shard) || store::has_size(here, shard.file.size)) continue;
    bytes += shard.file.size;
    names.insert(table_.hosts().at(shard.host).name);
    weights = weights || shard.weights;
  }
  if (names.empty()) return "";
  return fmt::format("{} of checkpoint {} ({}) stay on {}, where `strait resume` finds them",
                     weights ? "the files" : "optimizer state and caches", number(download.step),
                     base::byte_text(bytes), fmt::join(names, ", "));
}

void CheckpointDownloader::begin(std::optional<Download> download) {
  current_ = std::move(download);
  fetched_before_ = agent_.totals().fetched_bytes;
}

CheckpointDownloader::Remaining CheckpointDownloader::remaining() const {
  Remaining remaining;
  for (const auto* download : {&current_, &next_}) {
    if (!*download) continue;
    remaining.step = (*download)->step;
    for (std::size_t i = (*download)->done; i < (*download)->shards.size(); ++i) {
      const Shard& shard = (*download)->shards[i];
      if (wanted(shard)) remaining.bytes += shard.file.size;
    }
  }
  const std::uint64_t fetched = agent_.totals().fetched_bytes - fetched_before_;
  remaining.bytes -= std::min(remaining.bytes, fetched);
  return remaining;
}

std::vector<std::string> CheckpointDownloader::take_warnings() {
  const MutexLock lock(mutex_);
  return std::exchange(warnings_, {});
}

void CheckpointDownloader::run() {
  while (true) {
    Download current;
    {
      const MutexLock lock(mutex_);
      while (!current_ && !closing_) changed_.wait(mutex_);
      if (closing_) return;
      // A copy: add() and finish() read current_ while this thread downloads without the lock.
      current = *current_;
    }
    const base::Failure missing = download(current);
    {
      const MutexLock lock(mutex_);
      last_ = {missing.text, left_of(current), missing.code};
      if (!missing.text.empty()) {
        warnings_.push_back(fmt::format("checkpoint {} is incomplete on this machine: {}",
                                        number(current.step), missing.text));
      }
      begin(std::exchange(next_, std::nullopt));
    }
    changed_.notify_all();
  }
}

bool CheckpointDownloader::given_up(const Shard& shard) const {
  const MutexLock lock(mutex_);
  if (closing_ || !wanted(shard)) return true;
  if (!next_) return false;
  const auto is_on_host = [&shard](const Shard& other) { return other.host == shard.host; };
  // A newer checkpoint without shards of this host shows that the host has left the run. Its link
  // waits for hosts.hold before it gives up, which may be minutes.
  return std::none_of(next_->shards.begin(), next_->shards.end(), is_on_host);
}

base::Failure CheckpointDownloader::download(const Download& current) {
  base::Failure missing{base::ExitCode::done, ""};
  try {
    send_manifest(current.step);
    for (const Shard& shard : current.shards) {
      const base::Failure one = download_shard(current.step, shard);
      const MutexLock lock(mutex_);
      // finish() may have lowered what is wanted while this shard was fetched.
      if (!one.text.empty() && wanted(shard)) add_missing(missing, one);
      ++current_->done;
      fetched_before_ = agent_.totals().fetched_bytes;
    }
    if (missing.text.empty() && !closing_) table_.downloaded(current.step);
  } catch (const std::exception& error) {
    // An exception that leaves this thread would end the run.
    add_missing(missing, base::describe_failure(error));
  }
  return missing;
}

base::Failure CheckpointDownloader::download_shard(store::Step step, const Shard& shard) {
  const fs::path here = table_.folder_here(step) / shard.file.name;
  if (store::has_size(here, shard.file.size)) return {base::ExitCode::done, ""};
  const CheckpointTable::Host host = table_.hosts().at(shard.host);
  const fs::path there = store::checkpoint_directory(host.directory, step) / shard.file.name;
  const auto poll = [&] {
    if (given_up(shard)) throw base::UserError(base::ExitCode::interrupted, "");
  };
  try {
    poll();  // the host would read all of a file that is not wanted
    fetch_shard(agent_, host.agent, there, shard.file, here, poll);
    return {base::ExitCode::done, ""};
  } catch (const std::exception& error) {
    const base::Failure cause = base::describe_failure(error);
    const std::string what = fmt::format("{} of host {}", shard.file.name, host.name);
    if (cause.code == base::ExitCode::interrupted)
      // The text of an interruption is empty: this object caused it.
      return {cause.code, what + " was not waited for"};
    return {cause.code, fmt::format("{} ({})", what, cause.text)};
  }
}

void CheckpointDownloader::send_manifest(store::Step step) {
  const std::string text = store::read_text_file(table_.folder_here(step) / store::kManifestName,
                                                 store::kMostManifestBytes);
  for (const CheckpointTable::Host& host : table_.hosts()) {
    if (host.directory.empty()) continue;
    // The result is not needed: the manifest only shows people on that host what the shards are.
    agent_.put(host.agent, store::checkpoint_directory(host.directory, step) / store::kManifestName,
               text);
  }
}

}  // namespace strait::run
