#include "launcher/launch/run_transfer.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "launcher/base/byte_text.h"
#include "launcher/base/user_error.h"

namespace strait::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Kind = transfer::NeededGroup::Kind;

constexpr std::chrono::milliseconds kGatherLook{100};
constexpr std::chrono::seconds kSayEvery{5};
constexpr std::chrono::seconds kUnsaid{1};  // nobody wonders sooner

// Which host a file of a checkpoint was written on.
std::vector<transfer::CheckpointDownloader::Shard> shards_of(const plan::Plan& plan,
                                                const std::vector<store::ShardFile>& files) {
  std::map<std::string, std::size_t> hosts;
  for (const plan::Plan::Process& process : plan.processes) {
    const auto [stage, replica] = std::pair(process.name.stage, process.name.replica);
    hosts[store::shard_name(stage, replica)] = process.host_index;
    hosts[store::caches_name(stage, replica)] = process.host_index;
  }
  std::vector<transfer::CheckpointDownloader::Shard> shards;
  for (const store::ShardFile& file : files) {
    if (const auto found = hosts.find(file.name); found != hosts.end()) {
      shards.push_back({file, found->second});
    }
  }
  return shards;
}

template <class T>
T wait_for(std::future<T>& future, const std::function<void()>& meanwhile) {
  while (future.wait_for(kGatherLook) != std::future_status::ready) meanwhile();
  return future.get();
}

}  // namespace

RunTransfer::RunTransfer(std::vector<Host> hosts, std::unique_ptr<transfer::TransferAgent> porter,
                 const ModelQuestions& model)
    : model_(model), hosts_(std::move(hosts)), porter_(std::move(porter)), places_(hosts_.size()) {}

fs::path RunTransfer::place(std::size_t host, const transfer::NeededGroup& group) const {
  const fs::path inputs = hosts_[host].directory / "inputs";
  switch (group.kind) {
    case Kind::train:
    case Kind::eval:
      return inputs / "data";
    case Kind::model:
      return inputs / "model";
    case Kind::plugins:
      return inputs / "plugins";
    case Kind::checkpoint:
      break;
  }
  return inputs / group.files.front().from.parent_path().filename();
}

void RunTransfer::join(std::size_t host, const fs::path& directory, std::unique_ptr<net::Link> link) {
  Host& one = hosts_.at(host);
  one.directory = directory;
  if (courier_) courier_->keeps_at(host, directory);
  porter_->join(one.keeper, one.name, std::move(link));
}

std::vector<RunTransfer::Delivery> RunTransfer::ask(const plan::Plan& plan, const Needs& needs,
                                            const std::function<void()>& look) {
  const bool begins = needs.resume.empty() && needs.weights;
  const bool weights = begins && plan.recipe.model.weights == recipe::Weights::load;
  std::vector<Delivery> deliveries;
  for (const std::size_t host : needs.hosts) {
    std::vector<transfer::NeededGroup> groups = model_.needed_files(plan, host, needs.plugins, weights);
    if (!needs.resume.empty()) groups.push_back(model_.needed_checkpoint(plan, host, needs.resume));
    for (transfer::NeededGroup& group : groups) deliveries.push_back({host, std::move(group), {}, {}});
  }
  for (Delivery& delivery : deliveries) {
    for (const transfer::NeededFile& file : delivery.group.files) {
      look();
      delivery.tables.push_back(porter_->offer(file.from));
      const Host& host = hosts_[delivery.host];
      // A checkpoint's shards may still lie where they were written.
      const fs::path there =
          delivery.group.kind == Kind::checkpoint
              ? host.directory / "checkpoints" / file.from.parent_path().filename() / file.name
              : file.from;
      delivery.looks.push_back(porter_->look(host.keeper, there));
    }
  }
  return deliveries;
}

bool RunTransfer::is_there(Delivery& delivery, const std::function<void()>& look) {
  bool all = true;
  for (std::size_t i = 0; i < delivery.looks.size(); ++i) {
    try {
      all = wait_for(delivery.looks[i], look) == delivery.tables[i] && all;
    } catch (const base::UserError& error) {
      if (error.code() == base::ExitCode::peer_lost || error.code() == base::ExitCode::interrupted) throw;
      all = false;
    }
  }
  return all;
}

std::vector<std::future<std::uint64_t>> RunTransfer::order(std::vector<Delivery> deliveries,
                                                       const std::function<void()>& look) {
  std::vector<std::future<std::uint64_t>> orders;
  for (Delivery& delivery : deliveries) {
    const transfer::NeededGroup& group = delivery.group;
    if (is_there(delivery, look) && group.kind != Kind::checkpoint) continue;
    const fs::path folder = place(delivery.host, group);
    places_[delivery.host][group.kind] = folder;
    for (std::size_t i = 0; i < group.files.size(); ++i) {
      const transfer::NeededFile& file = group.files[i];
      const transfer::ChunkTable& table = delivery.tables[i];
      const transfer::ChunkSet chunks =
          file.whole ? transfer::ChunkSet::all(table.count()) : transfer::ChunkSet::holding(table, file.ranges);
      orders.push_back(
          porter_->bring(hosts_[delivery.host].keeper,
                         {table, chunks, folder / file.name, transfer::FetchRequest::As::content}));
    }
  }
  return orders;
}

void RunTransfer::rewind(const std::vector<std::size_t>& hosts, store::Step step,
                     const std::function<void()>& look) {
  std::vector<std::future<std::uint64_t>> orders;
  for (const std::size_t place : hosts) {
    const Host& host = hosts_.at(place);
    orders.push_back(
        porter_->rewind(host.keeper, host.directory, static_cast<std::uint64_t>(number(step))));
  }
  for (auto& one : orders) wait_for(one, look);
}

void RunTransfer::bring(const plan::Plan& plan, const Needs& needs, const std::function<void()>& look,
                    const Say& say) {
  const auto began = Clock::now();
  auto said = began;
  std::uint64_t fetched = 0;
  if (!needs.resume.empty()) {
    rewind(needs.hosts, store::open_checkpoint(needs.resume, store::Verify::manifest).step, look);
  }
  for (auto& one : order(ask(plan, needs, look), look)) {
    fetched += wait_for(one, [&] {
      look();
      if (Clock::now() - said < kSayEvery) return;
      said = Clock::now();
      say({"shipping", fmt::format("sending what the hosts lack: {} so far",
                                   base::byte_text(porter_->state().sent_bytes))});
    });
  }
  if (fetched == 0) return;
  const std::chrono::duration<double> took = Clock::now() - began;
  say({"shipped",
       fmt::format("hosts lacked {} of data, weights or plugins; sent {} from here in "
                   "{:.1f} s",
                   base::byte_text(fetched), base::byte_text(porter_->state().sent_bytes), took.count())});
}

void RunTransfer::settle(plan::StageJob& job, std::size_t host) const {
  const auto& places = places_.at(host);
  // Of a group that is a folder there is no name.
  const auto placed = [&places](Kind kind, const fs::path& here, const std::string& name) {
    const auto found = places.find(kind);
    if (found == places.end()) return fs::absolute(here).string();
    return (name.empty() ? found->second : found->second / name).string();
  };
  plan::Plan& plan = job.plan;
  plan.train.file = placed(Kind::train, plan.train.file, "train.safetensors");
  if (plan.eval) plan.eval->file = placed(Kind::eval, plan.eval->file, "eval.safetensors");
  plan.recipe.model.path = placed(Kind::model, plan.recipe.model.path, "");
  for (std::size_t i = 0; i < job.plugins.size(); ++i) {
    const fs::path file = job.plugins[i].file;
    job.plugins[i].file = placed(Kind::plugins, file, transfer::delivered_plugin_name(i, file));
  }
  if (!job.resume.empty()) job.resume = placed(Kind::checkpoint, job.resume, "");
}

void RunTransfer::begin_to_gather(const fs::path& run, std::int64_t keep) {
  courier_ =
      std::make_unique<transfer::CheckpointDownloader>(*porter_, hosts_, transfer::CheckpointDownloader::Settings{run, keep});
}

void RunTransfer::committed(const plan::Plan& plan, store::Step step,
                        const std::vector<store::ShardFile>& files) {
  courier_->committed(step, shards_of(plan, files));
}

std::string RunTransfer::gathered(const std::function<bool()>& give_up, const Say& say) {
  if (!courier_) return "";
  auto due = Clock::now() + kUnsaid;
  return courier_->finish([&](const transfer::CheckpointDownloader::Left& left) {
    if (give_up()) return true;
    if (Clock::now() >= due) {
      due = Clock::now() + kSayEvery;
      say({"gathering", fmt::format("checkpoint {} is on its way home, {} to go; one more Ctrl-C "
                                    "leaves it on the hosts",
                                    number(left.step), base::byte_text(left.bytes))});
    }
    return false;
  });
}

std::vector<std::string> RunTransfer::bring_traces(const plan::Plan& plan, const fs::path& run,
                                               const std::function<bool()>& give_up,
                                               const std::function<bool(std::size_t)>& lost) {
  std::vector<std::string> missing;
  for (const plan::Plan::Process& process : plan.processes) {
    const fs::path name = fs::path("logs") / (process.name.text() + ".trace.json");
    const Host& host = hosts_.at(process.host_index);
    const auto look = [&] {
      if (give_up()) throw base::UserError(base::ExitCode::interrupted, "traces were not waited for");
      if (!lost(process.host_index)) return;
      throw base::UserError(base::ExitCode::peer_lost, fmt::format("that of {} is on host {}, which is lost",
                                                       process.name.describe(), host.name));
    };
    try {
      look();
      auto looked = porter_->look(host.keeper, host.directory / name);
      const transfer::ChunkTable table = wait_for(looked, look);
      auto fetching =
          porter_->fetch({table, transfer::ChunkSet::all(table.count()), run / name, transfer::FetchRequest::As::file});
      wait_for(fetching.fetched, look);
    } catch (const base::UserError& error) {
      // A process that failed has left none.
      if (error.code() != base::ExitCode::bad_input) missing.emplace_back(error.what());
      if (error.code() == base::ExitCode::interrupted) break;
    }
  }
  return missing;
}

}  // namespace strait::launch
