#include "launcher/launch/host_memory_checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "framework/store/memory_file.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/plan/shard_places.h"

namespace strait::launch {
namespace {

namespace fs = std::filesystem;

}  // namespace

HostMemoryCheckpoints::HostMemoryCheckpoints(
    transfer::TransferAgent& agent, const plan::Plan& plan,
    std::vector<transfer::CheckpointDownloader::Host> hosts, std::function<bool(std::size_t)> lost)
    : agent_(agent),
      hosts_(std::move(hosts)),
      neighbours_(plan::memory_neighbours(plan)),
      lost_(std::move(lost)) {
  for (const plan::Plan::Process& process : plan.processes) {
    places_.emplace_back(process.name, process.host_index);
  }
  thread_ = std::thread([this] { run(); });
}

HostMemoryCheckpoints::~HostMemoryCheckpoints() { stop(); }

void HostMemoryCheckpoints::hold(store::Step step, std::vector<control::MemoryPart> parts) {
  {
    const MutexLock lock(mutex_);
    request_ = Request{step, std::move(parts)};
  }
  changed_.notify_all();
}

std::vector<control::MemoryDecision> HostMemoryCheckpoints::take_decisions() {
  const MutexLock lock(mutex_);
  return std::exchange(decisions_, {});
}

void HostMemoryCheckpoints::judge(const control::LossHistory& losses) {
  const MutexLock lock(mutex_);
  losses_ = losses;
  if (next_ && next_->decided) replace();
}

void HostMemoryCheckpoints::run() {
  while (true) {
    Request request;
    {
      const MutexLock lock(mutex_);
      while (!request_ && !closing_) changed_.wait(mutex_);
      if (closing_) return;
      request = *std::exchange(request_, std::nullopt);
      if (next_) give_up_next();  // memory has room for two
    }
    std::string trouble;
    try {
      HeldCheckpoint held = hold_on_hosts(request);
      {
        const MutexLock lock(mutex_);
        next_ = std::move(held);
      }
      copy_to_neighbours();
    } catch (const std::exception& error) {
      if (closing_) return;
      trouble = base::describe_failure(error).text;
    }
    const bool begun = [&] {
      const MutexLock lock(mutex_);
      if (!next_) decisions_.push_back({request.step, "", trouble});
      return next_.has_value();
    }();
    if (begun) decide(trouble);
  }
}

template <class T>
T HostMemoryCheckpoints::wait_on(std::future<T>& future, std::size_t host) const {
  return transfer::wait_for(future, [&] {
    if (closing_) throw base::UserError(base::ExitCode::interrupted, "the run has ended");
    if (!lost_(host)) return;
    throw base::UserError(base::ExitCode::peer_lost,
                          fmt::format("host {} is lost", hosts_.at(host).name));
  });
}

HostMemoryCheckpoints::HeldCheckpoint HostMemoryCheckpoints::hold_on_hosts(const Request& request) {
  HeldCheckpoint made{request.step, {}, false};
  std::vector<std::future<transfer::ChunkTable>> tables;
  for (const control::MemoryPart& part : request.parts) {
    const auto place =
        std::ranges::find(places_, part.process, &std::pair<net::ProcessName, std::size_t>::first);
    for (const control::MemoryShard& shard : part.shards) {
      made.contents.push_back({part.process, shard.file, {}, {place->second}});
      tables.push_back(agent_.hold_memory(hosts_.at(place->second).agent,
                                          store::descriptor_path(part.pid, shard.descriptor)));
    }
  }
  // All answers are waited for: what a host holds by then must not stay in its memory for ever.
  std::vector<Content> held;
  std::exception_ptr failed;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    Content& content = made.contents[i];
    try {
      content.table = wait_on(tables[i], content.hosts.front());
      held.push_back(content);
      check_written(content);
    } catch (const std::exception&) {
      if (!failed) failed = std::current_exception();
    }
  }
  if (!failed) return made;
  made.contents = std::move(held);
  const MutexLock lock(mutex_);
  release(made, safe_);
  std::rethrow_exception(failed);
}

void HostMemoryCheckpoints::check_written(const Content& content) const {
  if (content.table.size == content.file.size && content.table.whole == content.file.hash) return;
  throw store::StoreError(store::StoreError::Kind::corrupt,
                          fmt::format("{} in the memory of host {} is not what was written",
                                      content.file.name, hosts_.at(content.hosts.front()).name));
}

void HostMemoryCheckpoints::copy_to_neighbours() {
  std::vector<std::pair<std::size_t, std::future<std::uint64_t>>> copies;  // to which host
  std::vector<std::size_t> numbers;
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < next_->contents.size(); ++i) {
      const Content& content = next_->contents[i];
      const auto neighbour = neighbours_.at(content.hosts.front());
      if (!neighbour) continue;
      copies.emplace_back(*neighbour,
                          agent_.fetch_to_memory(hosts_.at(*neighbour).agent, content.table,
                                                 hosts_.at(content.hosts.front()).agent));
      numbers.push_back(i);
    }
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    wait_on(copies[i].second, copies[i].first);
    const MutexLock lock(mutex_);
    next_->contents[numbers[i]].hosts.push_back(copies[i].first);
  }
  const MutexLock lock(mutex_);
  next_->on_two = copies.size() == next_->contents.size();
}

void HostMemoryCheckpoints::decide(const std::string& trouble) {
  const MutexLock lock(mutex_);
  const store::Step step = next_->step;
  if (!trouble.empty() && safe_ && safe_->on_two) {
    give_up_next();
    decisions_.push_back(
        {step, "",
         fmt::format("the checkpoint of step {} in memory has no copy on a neighbour, that of step "
                     "{} stays: {}",
                     number(step), number(safe_->step), trouble)});
    return;
  }
  decisions_.push_back(
      {step, place_of(*next_),
       trouble.empty() ? "" : "checkpoints in memory have no copy on a neighbour: " + trouble});
  next_->decided = true;
  replace();
}

void HostMemoryCheckpoints::replace() {
  std::vector<store::Step> held = {next_->step};
  if (safe_) held.push_back(safe_->step);
  const std::vector<store::Step> needed = needed_in_memory(held, losses_);
  const auto is_needed = [&needed](const HeldCheckpoint& one) {
    return std::ranges::find(needed, one.step) != needed.end();
  };
  if (!is_needed(*next_)) return give_up_next();
  if (safe_ && is_needed(*safe_)) return;
  release(safe_, next_);
  safe_ = std::exchange(next_, std::nullopt);
}

void HostMemoryCheckpoints::give_up_next() {
  release(next_, safe_);
  next_.reset();
}

void HostMemoryCheckpoints::release(const std::optional<HeldCheckpoint>& old,
                                    const std::optional<HeldCheckpoint>& kept) {
  if (!old) return;
  std::set<std::string> ids;
  for (const Content& content : old->contents) ids.insert(content.table.id());
  if (kept) {
    for (const Content& content : kept->contents) ids.erase(content.table.id());
  }
  if (!ids.empty()) agent_.release({ids.begin(), ids.end()});
}

std::string HostMemoryCheckpoints::place_of(const HeldCheckpoint& one) const {
  if (one.on_two) return "the host of each stage, with a copy on a neighbour";
  return std::ranges::any_of(neighbours_, [](const auto& two) { return two.has_value(); })
             ? "the host of each stage, without copies"
             : "its host";
}

void HostMemoryCheckpoints::stop() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<MemoryCheckpoints::Held> HostMemoryCheckpoints::end_and_list() {
  stop();
  std::vector<Held> all;
  const MutexLock lock(mutex_);
  for (const auto* one : {&next_, &safe_}) {
    if (!*one) continue;
    Held& held = all.emplace_back();
    held.step = (*one)->step;
    for (const Content& content : (*one)->contents) held.files.push_back(content.file);
  }
  return all;
}

void HostMemoryCheckpoints::save(const Held& one, const fs::path& folder,
                                 const std::function<bool()>& give_up) {
  std::vector<Content> contents;
  {
    const MutexLock lock(mutex_);
    const bool newest = next_ && next_->step == one.step;
    contents = newest ? next_->contents : safe_->contents;
  }
  const auto lost = [this](const Content& content) {
    return std::ranges::all_of(content.hosts, lost_);
  };
  const auto check = [&](const Content& content) {
    if (give_up()) throw base::UserError(base::ExitCode::interrupted, "it was not waited for");
    if (!lost(content)) return;
    std::vector<std::string> names;
    for (const std::size_t host : content.hosts) names.push_back(hosts_.at(host).name);
    throw base::UserError(base::ExitCode::peer_lost,
                          fmt::format("the part of {} was in the memory of {} only, which {} lost",
                                      content.process.describe(), fmt::join(names, " and "),
                                      names.size() == 1 ? "is" : "are"));
  };
  for (const Content& content : contents) check(content);
  // All at once: each comes over the uplink of another host.
  std::atomic<bool> failed = false;
  std::vector<std::future<void>> fetches;
  fetches.reserve(contents.size());
  for (const Content& content : contents) {
    fetches.push_back(std::async(std::launch::async, [&, &content = content] {
      std::vector<net::ProcessName> sources;
      for (const std::size_t host : content.hosts) sources.push_back(hosts_.at(host).agent);
      try {
        agent_.fetch({content.table, transfer::ChunkSet::all(content.table.count()),
                      folder / content.file.name, transfer::FetchRequest::As::file},
                     sources, [&] {
                       check(content);
                       if (!failed) return;
                       throw base::UserError(base::ExitCode::interrupted, "another part failed");
                     });
      } catch (const std::exception&) {
        failed = true;
        throw;
      }
    }));
  }
  std::exception_ptr first;
  for (auto& fetch : fetches) {
    try {
      fetch.get();
    } catch (const base::UserError& error) {
      if (!first || error.code() != base::ExitCode::interrupted) first = std::current_exception();
    } catch (const std::exception&) {
      first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace strait::launch
