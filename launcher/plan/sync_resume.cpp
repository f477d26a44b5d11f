#include "launcher/plan/sync_resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/recipe/recipe_writer.h"
#include "launcher/plan/cache_resume.h"

namespace strait::plan {
namespace {

std::string cut_in_words(const Plan& plan) {
  std::string words;
  for (const Plan::Process& process : plan.processes) {
    if (process.name.replica != 0) continue;
    for (std::size_t c = 0; c < process.chunks.size(); ++c) {
      const char* between = c > 0 ? " and " : words.empty() ? "" : ", ";
      words += fmt::format("{}{}-{}", between, process.chunks[c].first, process.chunks[c].last);
    }
  }
  return words;
}

std::string said_of(const std::map<std::string, std::string>& kept, const std::string& key) {
  const auto found = kept.find(key);
  return found == kept.end() ? "none" : found->second;
}

}  // namespace

std::map<std::string, std::string> sync_kept(const Plan& plan) {
  if (plan.sync_method.empty()) return {};
  recipe::Recipe settled = resolved_recipe(plan);
  settled.sync.method = plan.sync_method;  // else nothing is written of a recipe without [sync]
  const nlohmann::json recipe = recipe::recipe_to_json(settled);
  nlohmann::json settings = recipe.value("sync", nlohmann::json::object());
  settings.erase("method");
  settings.erase("on_loss");
  return {{"method", plan.sync_method},
          {"settings", settings.dump()},
          {"replicas", fmt::format("{}", plan.recipe.pipeline.replicas)},
          {"layers", cut_in_words(plan)}};
}

void note_who_is_left(store::Manifest& checkpoint, const Plan& plan) {
  std::vector<std::uint32_t> left;
  for (const Plan::Process& process : plan.processes) {
    const std::string shard = store::shard_name(process.name.stage, process.name.replica);
    const bool wrote = std::ranges::any_of(
        checkpoint.files, [&](const store::ShardFile& file) { return file.name == shard; });
    if (wrote && process.name.stage == 0) left.push_back(process.name.replica);
  }
  if (left.size() == static_cast<std::size_t>(plan.recipe.pipeline.replicas)) return;
  checkpoint.sync["replicas"] = fmt::format("{}, of which {} were left",
                                            plan.recipe.pipeline.replicas, fmt::join(left, ", "));
  const auto caches = checkpoint.notes.find(kCachesNote);
  if (caches == checkpoint.notes.end()) return;
  caches->second += fmt::format("; of replicas {}", fmt::join(left, ", "));
}

SyncResume decide_sync(const store::Manifest& checkpoint, const Plan& plan,
                       const std::set<std::uint32_t>& without) {
  const auto wanted = sync_kept(plan);
  if (checkpoint.sync == wanted && without.empty()) return {};
  std::vector<std::string> differences;
  for (const char* key : {"replicas", "method", "settings", "layers"}) {
    const std::string before = said_of(checkpoint.sync, key);
    const std::string now = said_of(wanted, key);
    if (before != now) differences.push_back(fmt::format("{} {} instead of {}", key, now, before));
  }
  if (!without.empty()) {
    differences.push_back(fmt::format("no replica {}", fmt::join(without, ", ")));
  }
  return {false, fmt::format("every replica starts from the agreed model of step {}, not from its "
                             "own state: the run goes on with {}",
                             number(checkpoint.step), fmt::join(differences, ", "))};
}

}  // namespace strait::plan
