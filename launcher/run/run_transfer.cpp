#include "launcher/run/run_transfer.h"

#include "framework/store/step_folders.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Kind = transfer::NeededGroup::Kind;

constexpr std::chrono::seconds kWaitReportEvery{5};
constexpr std::chrono::seconds kCommandLimit{60};  // of a short command; more if a disk hangs
constexpr std::chrono::minutes kReadLimit{30};     // of reading a whole file of a model
// A host gets smaller files from here: a link with another host takes several round trips.
constexpr std::uint32_t kLeastChunks = 8;

// `poll`, which throws when a host has not answered in time.
std::function<void()> limited(const std::function<void()>& poll, const std::string& host,
                              const std::string& path, std::chrono::seconds limit) {
  return [poll, host, path, limit, until = Clock::now() + limit] {
    poll();
    if (Clock::now() < until) return;
    throw base::UserError(base::ExitCode::stalled,
                          "host {} has not read {} for {} s: does its file system hang?", host,
                          path, limit.count());
  };
}

// "sending files that the hosts lack: 120 MB of 2.40 GB, 190 s left". A host that has a part of a
// file needs less.
std::string shipping_text(std::uint64_t sent, std::uint64_t all,
                          std::chrono::duration<double> spent) {
  std::string text = fmt::format("sending files that the hosts lack: {} of {}",
                                 base::byte_text(sent), base::byte_text(all));
  if (sent == 0 || sent >= all) return text;
  return text + fmt::format(", {:.0f} s left", spent.count() * static_cast<double>(all - sent) /
                                                   static_cast<double>(sent));
}

}  // namespace

RunTransfer::RunTransfer(std::vector<Host> hosts, std::unique_ptr<transfer::TransferAgent> agent,
                         const ModelQuestions& model)
    : model_(model), hosts_(std::move(hosts)), agent_(std::move(agent)), folders_(hosts_.size()) {}

fs::path RunTransfer::folder_of(std::size_t host, const transfer::NeededGroup& group) const {
  const fs::path inputs = hosts_[host].directory / "inputs";
  switch (group.kind) {
    case Kind::train:
    case Kind::eval:
      return inputs / "data";
    case Kind::model:
      return inputs / "model";
    case Kind::weights:
      // A checkpoint is known by the name of its folder.
      return inputs / "weights" / group.files.front().from.parent_path().filename();
    case Kind::adapter:
      return inputs / "adapter";
    case Kind::reference:
      return inputs / "reference";
    case Kind::plugins:
      return inputs / "plugins";
    case Kind::checkpoint:
      break;
  }
  return inputs / group.files.front().from.parent_path().filename();
}

void RunTransfer::add_host(std::size_t host, const fs::path& directory,
                           std::unique_ptr<net::Link> link, const std::string& key) {
  Host& one = hosts_.at(host);
  one.directory = directory;
  // A host that was left out at the start had none.
  if (table_) table_->set_directory(host, directory);
  forget_holder(host);
  agent_->add_peer(one.agent, one.name, std::move(link), key);
}

void RunTransfer::forget_holder(std::size_t host) {
  for (auto& [id, holders] : holders_) {
    std::erase_if(holders, [host](const Holder& holder) { return holder.host == host; });
  }
}

std::optional<net::ProcessName> RunTransfer::source_for(std::size_t host,
                                                        const transfer::ChunkTable& table,
                                                        const transfer::ChunkSet& chunks) const {
  const auto found = holders_.find(table.id());
  if (found == holders_.end() || chunks.count() < kLeastChunks) return std::nullopt;
  const auto holder = std::find_if(
      found->second.rbegin(), found->second.rend(),
      [&](const Holder& one) { return one.host != host && one.chunks.contains(chunks); });
  if (holder == found->second.rend()) return std::nullopt;
  return hosts_[holder->host].agent;
}

void RunTransfer::remove_host(std::size_t host) {
  agent_->remove_peer(hosts_.at(host).agent, "its agent has ended");
}

std::vector<RunTransfer::Delivery> RunTransfer::needed_deliveries(
    const plan::Plan& plan, const Needs& needs, const std::function<void()>& poll) {
  // A checkpoint of adapters does not contain the weights of the model.
  const bool weights =
      needs.weights && (needs.resume.empty() || plan.recipe.model.lora.has_value());
  plan::Plan needed = plan;
  if (!needs.begins) needed.recipe.model.adapter.clear();
  std::vector<Delivery> deliveries;
  for (const std::size_t host : needs.hosts) {
    std::vector<transfer::NeededGroup> groups =
        model_.needed_files(needed, host, needs.plugins, weights);
    if (!needs.resume.empty()) {
      groups.push_back(model_.needed_checkpoint(plan, host, needs.resume, needs.part));
    }
    for (transfer::NeededGroup& group : groups) {
      deliveries.push_back({host, std::move(group), {}, {}});
    }
  }
  for (Delivery& delivery : deliveries) {
    for (const transfer::NeededFile& file : delivery.group.files) {
      poll();
      delivery.tables.push_back(agent_->offer(file.from));
      const Host& host = hosts_[delivery.host];
      // A checkpoint's shards may still be where the host's processes wrote them.
      const fs::path there = delivery.group.kind == Kind::checkpoint
                                 ? host.directory / store::kCheckpointsFolder /
                                       file.from.parent_path().filename() / file.name
                                 : file.from;
      delivery.tables_there.push_back(agent_->stat(host.agent, there));
    }
  }
  return deliveries;
}

bool RunTransfer::is_present(Delivery& delivery, const std::function<void()>& poll) {
  bool all = true;
  for (std::size_t i = 0; i < delivery.tables_there.size(); ++i) {
    const auto in_time = limited(poll, hosts_[delivery.host].name,
                                 delivery.group.files[i].from.string(), kReadLimit);
    try {
      // Every answer is taken, even after a mismatch: an error of the host must not be overlooked.
      all = transfer::wait_for(delivery.tables_there[i], in_time) == delivery.tables[i] && all;
    } catch (const base::UserError& error) {
      constexpr std::array kOfHost{base::ExitCode::peer_lost, base::ExitCode::interrupted,
                                   base::ExitCode::stalled};
      if (std::ranges::find(kOfHost, error.code()) != kOfHost.end()) throw;
      all = false;
    }
  }
  return all;
}

std::vector<std::future<std::uint64_t>> RunTransfer::start_fetches(
    std::vector<Delivery> deliveries, const std::function<void()>& poll) {
  std::vector<std::future<std::uint64_t>> fetches;
  for (Delivery& delivery : deliveries) {
    const transfer::NeededGroup& group = delivery.group;
    // Files that the host has are read at the launcher's path. A checkpoint was looked for at
    // another path, so it is always fetched into `inputs`; chunks that the host has are copied
    // locally.
    const bool present = is_present(delivery, poll);
    if (present) {
      for (const transfer::ChunkTable& table : delivery.tables) {
        holders_[table.id()].push_back({delivery.host, transfer::ChunkSet::all(table.count())});
      }
    }
    if (present && group.kind != Kind::checkpoint) continue;
    const fs::path folder = folder_of(delivery.host, group);
    folders_[delivery.host][group.kind] = folder;
    for (std::size_t i = 0; i < group.files.size(); ++i) {
      const transfer::NeededFile& file = group.files[i];
      const transfer::ChunkTable& table = delivery.tables[i];
      const transfer::ChunkSet chunks = file.whole
                                            ? transfer::ChunkSet::all(table.count())
                                            : transfer::ChunkSet::holding(table, file.ranges);
      const auto source = source_for(delivery.host, table, chunks);
      if (!source) to_send_ += chunks.bytes(table);
      fetches.push_back(agent_->fetch_on(
          hosts_[delivery.host].agent,
          {table, chunks, folder / file.name, transfer::FetchRequest::As::content}, source));
      // Before the fetch has ended: the next host may wait for chunks that this one still gets.
      holders_[table.id()].push_back({delivery.host, chunks});
    }
  }
  return fetches;
}

void RunTransfer::rewind(const std::vector<std::size_t>& hosts, store::Step step,
                         const std::function<void()>& poll) {
  std::vector<std::pair<std::future<std::uint64_t>, std::function<void()>>> done;
  for (const std::size_t number : hosts) {
    const Host& host = hosts_.at(number);
    done.emplace_back(agent_->rewind(host.agent, host.directory, step),
                      limited(poll, host.name, host.directory.string(), kCommandLimit));
  }
  for (auto& [one, in_time] : done) transfer::wait_for(one, in_time);
}

void RunTransfer::deliver_inputs(const plan::Plan& plan, const Needs& needs,
                                 const std::function<void()>& poll, const Report& report) {
  const auto began = Clock::now();
  auto reported = began;
  std::uint64_t fetched = 0;
  for (auto& one : start_fetches(needed_deliveries(plan, needs, poll), poll)) {
    fetched += transfer::wait_for(one, [&] {
      poll();
      if (Clock::now() - reported < kWaitReportEvery) return;
      reported = Clock::now();
      report(
          {"shipping", shipping_text(agent_->totals().sent_bytes, to_send_, Clock::now() - began)});
    });
  }
  if (fetched == 0) return;
  const std::chrono::duration<double> took = Clock::now() - began;
  report({"shipped",
          fmt::format("hosts fetched {} of data, weights or plugins; sent {} from here in {:.1f} s",
                      base::byte_text(fetched), base::byte_text(agent_->totals().sent_bytes),
                      took.count())});
}

void RunTransfer::set_input_paths(plan::StageJob& job, std::size_t host) const {
  const auto& folders = folders_.at(host);
  // An empty name stands for the folder itself.
  const auto path_there = [&folders](Kind kind, const fs::path& here, const std::string& name) {
    const auto found = folders.find(kind);
    if (found == folders.end()) return fs::absolute(here).string();
    return (name.empty() ? found->second : found->second / name).string();
  };
  plan::Plan& plan = job.plan;
  if (!plan.train.file.empty()) {
    plan.train.file = path_there(Kind::train, plan.train.file, plan::kTrainRows);
  }
  if (plan.eval) plan.eval->file = path_there(Kind::eval, plan.eval->file, plan::kEvalRows);
  recipe::Recipe::Model& model = plan.recipe.model;
  model.path = path_there(Kind::model, model.path, "");
  if (!model.weights_run.empty()) {
    model.weights_run = path_there(Kind::weights, model.weights_run, "");
  }
  if (!model.adapter.empty()) model.adapter = path_there(Kind::adapter, model.adapter, "");
  std::string& reference = plan.recipe.train.preference.reference;
  if (!reference.empty()) reference = path_there(Kind::reference, reference, "");
  for (std::size_t i = 0; i < job.plugins.size(); ++i) {
    const fs::path file = job.plugins[i].file;
    job.plugins[i].file = path_there(Kind::plugins, file, transfer::delivered_plugin_name(i, file));
  }
  if (!job.resume.empty()) job.resume = path_there(Kind::checkpoint, job.resume, "");
}

std::vector<std::string> RunTransfer::download_traces(
    const plan::Plan& plan, const fs::path& run, const std::function<bool()>& give_up,
    const std::function<bool(std::size_t)>& lost) {
  std::vector<std::string> missing;
  std::set<std::size_t> stalled;                    // hosts
  const std::vector<Host> hosts = table_->hosts();  // ours may change on another thread
  for (const plan::Plan::Process& process : plan.processes) {
    if (stalled.contains(process.host_index)) continue;
    const fs::path name = base::trace_file(process.name.text());
    const Host& host = hosts.at(process.host_index);
    const auto poll = [&] {
      if (give_up()) {
        throw base::UserError(base::ExitCode::interrupted, "the user did not wait for the traces");
      }
      if (!lost(process.host_index)) return;
      throw base::UserError(base::ExitCode::peer_lost,
                            "the trace of {} is on host {}, which is lost", process.name.describe(),
                            host.name);
    };
    try {
      poll();
      auto table_there = agent_->stat(host.agent, host.directory / name);
      const transfer::ChunkTable table =
          transfer::wait_for(table_there, limited(poll, host.name, name, kCommandLimit));
      agent_->fetch({table, transfer::ChunkSet::all(table.count()), run / name,
                     transfer::FetchRequest::As::file},
                    {host.agent}, poll);
    } catch (const std::exception& error) {
      const base::Failure failure = base::describe_failure(error);
      // A process that failed, or has saved nothing yet, has written no trace.
      if (failure.code != base::ExitCode::bad_input) missing.push_back(failure.text);
      if (failure.code == base::ExitCode::interrupted) break;
      // Its other traces would take the full limit as well, one after the other.
      if (failure.code == base::ExitCode::stalled) stalled.insert(process.host_index);
    }
  }
  return missing;
}

}  // namespace strait::run
