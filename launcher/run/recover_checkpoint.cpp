

#include "framework/net/node.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_launch.h"
#include "launcher/run/run_storage.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

std::vector<store::ShardFile> missing_shards(const fs::path& checkpoint,
                                             const store::Manifest& manifest) {
  std::vector<store::ShardFile> missing;
  for (const store::ShardFile& file : store::files_of(manifest, store::Part::all)) {
    if (!store::has_size(checkpoint / file.name, file.size)) missing.push_back(file);
  }
  return missing;
}

// The newest checkpoint, or that of step `from`, if it was committed but is incomplete on this
// machine.
std::optional<store::Manifest> find_unfinished(const RunDirectory& directory,
                                               std::optional<store::Step> from) {
  if (from) {
    // The others do not matter, whatever state they are in.
    const fs::path path = store::checkpoint_directory(directory.path(), *from);
    store::Manifest manifest = store::open_checkpoint(path, store::Verify::manifest);
    if (missing_shards(path, manifest).empty()) return std::nullopt;
    return manifest;
  }
  const store::CheckpointList list = store::list_checkpoints(directory.path());
  for (const store::Unusable& one : list.unusable) {
    if (!one.committed) continue;
    if (!list.complete.empty() && one.step < list.complete.front().manifest.step) break;
    try {
      return store::open_checkpoint(one.path, store::Verify::manifest);
    } catch (const store::StoreError& error) {
      if (error.kind() != store::StoreError::Kind::corrupt) throw;
      continue;  // its manifest is damaged: which shards it has is not known
    }
  }
  return std::nullopt;
}

// The run reduced to the hosts that wrote these shards, and their processes.
// `used` gets their indices in the run.
plan::RunFile with_hosts_of(const plan::RunFile& run, const std::vector<store::ShardFile>& shards,
                            std::set<std::size_t>& used) {
  std::set<net::ProcessName> writers;
  for (const auto& shard : plan::written_shards(run.plan, shards)) writers.insert(shard.process);
  const std::vector<recipe::RecipeHost> listed = plan::hosts_of(run.plan.recipe);
  plan::RunFile part = run;
  part.plan.recipe.hosts.list.clear();
  part.plan.hosts.clear();
  part.plan.processes.clear();
  part.plan.links.clear();
  std::map<std::size_t, std::size_t> indices;  // in the plan -> in `part`
  for (const plan::Plan::Process& process : run.plan.processes) {
    if (!writers.contains(process.name)) continue;
    const auto [index, added] = indices.emplace(process.host_index, indices.size());
    if (added) {
      used.insert(process.host_index);
      part.plan.recipe.hosts.list.push_back(listed.at(process.host_index));
      part.plan.hosts.push_back(run.plan.hosts.at(process.host_index));
    }
    part.plan.processes.push_back(process);
    part.plan.processes.back().host_index = index->second;
  }
  return part;
}

// Returns what could not be fetched, and why.
base::Failure fetch_from_hosts(RunDirectory& directory, plan::RunFile part,
                               const store::Manifest& manifest,
                               const std::vector<store::ShardFile>& shards,
                               const ModelQuestions& model, hosts::Rendezvous* rendezvous,
                               const RunTransfer::Report& report) {
  const base::StopSignals signals;
  net::Node node(launcher_node(part.run, directory.next_generation()));
  RunHosts hosts(node, part, directory, model, signals.count(), rendezvous);
  RunTransfer& files = *hosts.file_transfer();
  CheckpointTable table({directory.path(), std::nullopt}, files.hosts(), &files.agent());
  CheckpointDownloader downloader(table, {});
  downloader.add(manifest.step, plan::written_shards(part.plan, shards));
  const auto stopped = [&signals] { return signals.count().load() > 0; };
  const auto finished = finish_downloads(downloader, stopped, report);
  if (!finished.missing.empty() && stopped()) {
    throw base::UserError(base::ExitCode::interrupted, "not resumed: {}", finished.missing);
  }
  return {finished.code, finished.missing};
}

}  // namespace

std::string recover_checkpoint(RunDirectory& directory, const plan::RunFile& run,
                               std::optional<store::Step> from, const ModelQuestions& model,
                               hosts::Rendezvous* rendezvous, const RunTransfer::Report& report,
                               const std::set<std::size_t>& lost) {
  if (!recipe::stores_on_hosts(run.plan.recipe.hosts.backend)) return "";
  const auto manifest = find_unfinished(directory, from);
  if (!manifest) return "";
  const auto shards =
      missing_shards(store::checkpoint_directory(directory.path(), manifest->step), *manifest);
  std::set<std::size_t> used;
  const plan::RunFile part = with_hosts_of(run, shards, used);
  if (part.plan.processes.empty()) return "";
  const auto refusal = [&manifest](base::ExitCode code, const std::string& why) {
    return base::UserError(code, "checkpoint {} cannot be used: {}", number(manifest->step), why);
  };
  for (const std::size_t host : used) {
    if (!lost.contains(host)) continue;
    throw refusal(base::ExitCode::corrupt,
                  fmt::format("part of it is only on host {}, which does not answer",
                              run.plan.hosts.at(host).name));
  }
  base::Failure missing;
  try {
    missing = fetch_from_hosts(directory, part, *manifest, shards, model, rendezvous, report);
  } catch (const base::UserError& error) {
    if (error.code() == base::ExitCode::interrupted) throw;
    throw refusal(error.code(), error.what());
  }
  if (!missing.text.empty()) throw refusal(missing.code, missing.text);
  return fmt::format(
      "checkpoint {} was incomplete on this machine; fetched the rest from {}",
      number(manifest->step),
      part.plan.hosts.size() == 1 ? part.plan.hosts.front().name : "the hosts that had it");
}

}  // namespace strait::run
