#include "launcher/run/memory_checkpoints.h"

#include <fmt/ranges.h>

#include "framework/store/atomic_file.h"
#include "framework/store/store_error.h"
#include "launcher/run/checkpoint_downloader.h"

namespace strait::run {

namespace fs = std::filesystem;
namespace {

constexpr std::chrono::milliseconds kRoomInterval{500};  // between looks for room on the disk

}  // namespace

MemoryCheckpoints::MemoryCheckpoints(const plan::RunFile& run, CheckpointTable& table,
                                     std::function<bool(std::size_t)> lost)
    : plan_(run.plan),
      table_(table),
      lost_(std::move(lost)),
      neighbours_(plan::memory_neighbours(plan_)) {
  if (table_.agent() != nullptr) {
    thread_ = std::thread([this] { this->run(); });
  } else {
    here_ = std::make_unique<store::MemoryDirectory>(table_.hosts().at(0).memory);
  }
}

MemoryCheckpoints::~MemoryCheckpoints() { stop(); }

void MemoryCheckpoints::stop() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MemoryCheckpoints::hold(store::Step step, std::vector<store::ShardFile> files) {
  {
    const MutexLock lock(mutex_);
    // All processes write into one directory, so there is no neighbour to copy to.
    if (here_) return decide({step, std::move(files)}, "");
    made_ = Held{step, std::move(files)};
  }
  changed_.notify_all();
}

std::vector<MemoryDecision> MemoryCheckpoints::take_decisions() {
  const MutexLock lock(mutex_);
  return std::exchange(decisions_, {});
}

void MemoryCheckpoints::run() {
  while (true) {
    Held made;
    {
      const MutexLock lock(mutex_);
      while (!made_ && !closing_) changed_.wait(mutex_);
      if (closing_) return;
      // One at a time: workers make the next only when this one is decided.
      made = *std::exchange(made_, std::nullopt);
    }
    table_.make_room(made.step);  // also removes copies of a checkpoint that was abandoned
    std::string problem;
    std::optional<std::vector<transfer::ChunkTable>> tables;
    try {
      tables = check_shards(made);
      copy_to_neighbours(made, *tables);
    } catch (const std::exception& error) {
      if (closing_) return;
      problem = base::describe_failure(error).text;
    }
    const MutexLock lock(mutex_);
    // Parts without copies still survive the loss of a process, though not of a host.
    if (tables) {
      decide(std::move(made), problem);
    } else {
      decisions_.push_back({made.step, "", problem});
    }
  }
}

template <class T>
T MemoryCheckpoints::wait_on(std::future<T>& future, std::size_t host) const {
  return transfer::wait_for(future, [&] {
    if (closing_) throw base::UserError(base::ExitCode::interrupted, "the run has ended");
    if (!lost_(host)) return;
    throw base::UserError(base::ExitCode::peer_lost, "host {} is lost",
                          table_.hosts().at(host).name);
  });
}

// Compares the shards on their hosts with what was reported. From then on the hosts offer them to
// their neighbours.
std::vector<transfer::ChunkTable> MemoryCheckpoints::check_shards(const Held& made) const {
  const std::vector<plan::WrittenShard> shards = plan::written_shards(plan_, made.files);
  std::vector<std::future<transfer::ChunkTable>> answers;
  answers.reserve(shards.size());
  for (const plan::WrittenShard& shard : shards) {
    answers.push_back(
        table_.agent()->stat(table_.hosts().at(shard.host).agent,
                             table_.folder_in_memory(made.step, shard.host) / shard.file.name));
  }
  std::vector<transfer::ChunkTable> tables;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const store::ShardFile& file = shards[i].file;
    const transfer::ChunkTable& table = tables.emplace_back(wait_on(answers[i], shards[i].host));
    if (table.size == file.size && table.whole == file.hash) continue;
    throw store::StoreError(store::StoreError::Kind::corrupt,
                            "{} in the memory of host {} is not what was written", file.name,
                            table_.hosts().at(shards[i].host).name);
  }
  return tables;
}

void MemoryCheckpoints::copy_to_neighbours(Held& made,
                                           const std::vector<transfer::ChunkTable>& tables) const {
  const std::vector<plan::WrittenShard> shards = plan::written_shards(plan_, made.files);
  std::vector<std::pair<std::size_t, std::future<std::uint64_t>>> copies;  // to which host
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto neighbour = neighbours_.at(shards[i].host);
    if (!neighbour) continue;
    const fs::path to = table_.folder_in_memory(made.step, *neighbour) / shards[i].file.name;
    copies.emplace_back(
        *neighbour, table_.agent()->fetch_on(table_.hosts().at(*neighbour).agent,
                                             {tables[i], transfer::ChunkSet::all(tables[i].count()),
                                              to, transfer::FetchRequest::As::file},
                                             table_.hosts().at(shards[i].host).agent));
  }
  for (auto& [host, copied] : copies) wait_on(copied, host);
  made.on_two = copies.size() == shards.size();
}

void MemoryCheckpoints::decide(Held made, const std::string& problem) {
  const store::Step step = made.step;
  const std::string place = place_of(made);
  if (const auto stays = table_.hold(std::move(made))) {
    decisions_.push_back(
        {step, "",
         fmt::format("the checkpoint of step {} in memory has no copy on a neighbour, that of step "
                     "{} stays: {}",
                     number(step), number(*stays), problem)});
    return;
  }
  decisions_.push_back(
      {step, place,
       problem.empty() ? "" : "checkpoints in memory have no copy on a neighbour: " + problem});
}

std::string MemoryCheckpoints::place_of(const Held& one) const {
  if (here_) return "the launcher";
  if (one.on_two) return "the host of each stage, with a copy on a neighbour";
  return std::ranges::any_of(neighbours_, [](const auto& two) { return two.has_value(); })
             ? "the host of each stage, without copies"
             : "its host";
}

void MemoryCheckpoints::fetch(const plan::WrittenShard& shard, const Held& one, const fs::path& to,
                              const std::function<void()>& poll) const {
  std::vector<std::size_t> hosts = {shard.host};
  if (one.on_two) hosts.push_back(*neighbours_.at(shard.host));
  std::string problem;
  std::vector<std::string> names;
  for (const std::size_t host : hosts) {
    const CheckpointTable::Host from = table_.hosts().at(host);
    names.push_back(from.name);
    if (lost_(host)) continue;
    try {
      return fetch_shard(*table_.agent(), from.agent,
                         table_.folder_in_memory(one.step, host) / shard.file.name, shard.file,
                         to / shard.file.name, [&] {
                           poll();
                           if (!lost_(host)) return;
                           throw base::UserError(base::ExitCode::peer_lost, "it is lost");
                         });
    } catch (const base::UserError& error) {
      // The user does not wait, so the neighbour is not tried either.
      if (error.code() == base::ExitCode::interrupted) throw;
      problem = fmt::format("; {}: {}", names.back(), error.what());
    }
  }
  throw base::UserError(base::ExitCode::peer_lost,
                        "the part of {} was in the memory of {} only, which {} lost{}",
                        shard.process.describe(), fmt::join(names, " and "),
                        names.size() == 1 ? "is" : "are", problem);
}

void MemoryCheckpoints::save(const Held& one, const fs::path& to,
                             const std::function<bool()>& give_up) const {
  store::make_directory(to);
  if (here_) {
    for (const store::ShardFile& file : one.files) {
      if (store::has_size(to / file.name, file.size)) continue;
      store::copy_shard(table_.folder_in_memory(one.step, 0) / file.name, to / file.name, file);
    }
    return;
  }
  std::atomic<bool> failed = false;
  std::exception_ptr first;  // of the part that failed first, which stopped the others
  const auto poll = [&] {
    if (give_up()) throw base::UserError(base::ExitCode::interrupted, "it was not waited for");
    // One part that is lost makes the checkpoint useless.
    if (failed) throw base::UserError(base::ExitCode::interrupted, "another part failed");
  };
  // All at once: each comes over the uplink of another host.
  std::vector<std::future<void>> fetches;
  for (const plan::WrittenShard& shard : plan::written_shards(plan_, one.files)) {
    if (store::has_size(to / shard.file.name, shard.file.size)) continue;
    fetches.push_back(std::async(std::launch::async, [&, shard] {
      try {
        fetch(shard, one, to, poll);
      } catch (const std::exception&) {
        if (!failed.exchange(true)) first = std::current_exception();
      }
    }));
  }
  for (const auto& done : fetches) done.wait();
  if (first) std::rethrow_exception(first);
}

void MemoryCheckpoints::save_where_room(const Held& one, const Recovery& with) const {
  const fs::path folder = table_.folder_here(one.step);
  for (bool said = false;; said = true) {
    try {
      save(one, folder, with.give_up);
      // A checkpoint of the same step may have been committed on the hosts, with its manifest here
      // but not its shards.
      if (!store::is_committed(folder)) with.commit(one.step, one.files);
      return;
    } catch (const std::exception& error) {
      const base::Failure failure = base::describe_failure(error);
      const bool full = failure.code == base::ExitCode::storage_full;
      if (!full || with.give_up()) {
        std::error_code ignored;
        if (!store::is_committed(folder)) fs::remove_all(folder, ignored);
        throw;
      }
      if (!said) {
        with.report({"waits_for_room",
                     fmt::format("the checkpoint of step {} is in memory only, and waits for room "
                                 "on this machine's disk (a stop gives it up): {}",
                                 number(one.step), failure.text)});
      }
    }
    std::this_thread::sleep_for(kRoomInterval);
  }
}

std::optional<store::Step> MemoryCheckpoints::recover(const Recovery& with) {
  stop();
  const fs::path& run = table_.settings().run;
  const std::vector<store::Step> committed = store::committed_steps(run);
  const store::CheckpointList list =
      store::list_checkpoints(run, store::Verify::sizes, store::Part::all);
  std::optional<store::Step> here;
  if (!list.complete.empty()) here = list.complete.front().manifest.step;
  for (const Held& one : table_.held()) {
    // The list is sorted: all that follow are older still.
    if (here && *here >= one.step) return std::nullopt;
    if (with.losses.is_bad(one.step)) continue;
    try {
      save_where_room(one, with);
      with.report(
          {"from_memory", fmt::format("the checkpoint of step {} was in memory only; it is on this "
                                      "machine's disk now",
                                      number(one.step))});
      // A newer checkpoint is on the hosts' disks. It is the one to resume from if they answer
      // again.
      if (!committed.empty() && one.step < committed.front()) return std::nullopt;
      return one.step;
    } catch (const std::exception& error) {
      const base::Failure failure = base::describe_failure(error);
      with.report(
          {"lost_memory", fmt::format("the checkpoint of step {} in memory cannot be used: {}",
                                      number(one.step), failure.text)});
      if (with.give_up()) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace strait::run
