#include "launcher/recipe/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "framework/store/checkpoint.h"
#include "launcher/recipe/recipe_io.h"

namespace strait::plan {
namespace {

// The last layer upstream of a boundary.
int layer_above(const Plan& plan, const Plan::Link& link) {
  const auto chunk = static_cast<std::size_t>(link.position / plan.recipe.pipeline.stages);
  return plan.process(link.connects).chunks.at(chunk).last;
}

// The gradients of this codec have no entries, but a state that is saved in the same way.
bool has_gradient_state(const Plan& plan) {
  return plan.recipe.codec.backward == "transform" &&
         std::ranges::any_of(
             plan.links, [](const Plan::Link& link) { return link.use == Plan::Use::boundary; });
}

std::string text_of_layers(const Plan& plan) {
  std::string text;
  for (const Plan::Process& process : plan.processes) {
    if (process.name.replica != 0) continue;
    for (std::size_t c = 0; c < process.chunks.size(); ++c) {
      const char* between = c > 0 ? " and " : text.empty() ? "" : ", ";
      text += fmt::format("{}{}-{}", between, process.chunks[c].first, process.chunks[c].last);
    }
  }
  return text;
}

std::string value_or_none(const std::map<std::string, std::string>& saved, const std::string& key) {
  const auto found = saved.find(key);
  return found == saved.end() ? "none" : found->second;
}

}  // namespace

// Compared with the text of the run that resumes, so a new wording drops the caches once.
std::string saved_caches(const Plan& plan) {
  std::string text;
  for (const Plan::Link& link : plan.links) {
    if (!link.has_cache()) continue;
    text += fmt::format("{}{} after layer {}: {} bytes a row, {} in memory, {} on disk",
                        text.empty() ? "" : "; ", link.name, layer_above(plan, link),
                        link.cache.entry_bytes, link.cache.memory_bytes, link.cache.disk_bytes);
  }
  const recipe::Recipe::Codec& codec = plan.recipe.codec;
  const bool is_named = codec.backward == "delta" || codec.forward == "transform";
  if ((!text.empty() && is_named) || has_gradient_state(plan)) {
    text += fmt::format("; {} forward, {} backward", codec.forward, codec.backward);
  }
  if (has_gradient_state(plan)) {
    text += fmt::format(", rows of {} tokens", plan.recipe.data.row);
    if (plan.slices > 1) text += fmt::format(" in {} slices", plan.slices);
  }
  return text;
}

CacheResume decide_caches(const store::Manifest& checkpoint, const Plan& plan) {
  CacheResume resume;
  resume.generation = checkpoint.codec_generation;
  const std::string wanted = saved_caches(plan);
  if (wanted.empty()) return resume;
  const auto note = checkpoint.notes.find(kCachesNote);
  if (note == checkpoint.notes.end()) {
    resume.dropped = fmt::format("the checkpoint of step {} has none", number(checkpoint.step));
  } else if (note->second != wanted) {
    resume.dropped = fmt::format(
        "the checkpoint was saved by another pipeline ({}) than the one that resumes ({})",
        note->second, wanted);
  }
  resume.restore = resume.dropped.empty();
  if (resume.restore) return resume;
  ++resume.generation;
  resume.dropped = fmt::format(
      "activation caches are dropped at all ends: {}; every sample misses once (codec generation "
      "{})",
      resume.dropped, resume.generation);
  return resume;
}

// Compared in the same way.
std::map<std::string, std::string> saved_sync(const Plan& plan) {
  if (plan.sync_method.empty()) return {};
  recipe::Recipe resolved = resolved_recipe(plan);
  resolved.sync.method = plan.sync_method;  // else the writer omits [sync] where it is all defaults
  const nlohmann::json recipe = recipe::recipe_to_json(resolved);
  nlohmann::json settings = recipe.value("sync", nlohmann::json::object());
  settings.erase("method");
  settings.erase("on_loss");
  settings.erase("group");        // the groups themselves are compared below
  settings.erase("share_state");  // checkpoints are the same with and without it
  std::map<std::string, std::string> saved = {
      {"method", plan.sync_method},
      {"settings", settings.dump()},
      {"replicas", fmt::format("{}", plan.recipe.pipeline.replicas)},
      {"layers", text_of_layers(plan)}};
  // Exact sums leave a replica no state of its own, with or without groups. Other methods have the
  // same groups in all stages.
  const bool exact = plan.sync_method == sync::kDefaultMethod;
  const bool grouped = std::ranges::any_of(
      plan.processes, [](const Plan::Process& process) { return process.group.has_value(); });
  if (grouped && !exact) saved["groups"] = sync::groups_text(groups_of(plan, 0));
  return saved;
}

void mark_missing_replicas(store::Manifest& checkpoint, const Plan& plan) {
  std::vector<std::uint32_t> writers;
  for (const Plan::Process& process : plan.processes) {
    const std::string shard = store::shard_name(process.name.stage, process.name.replica);
    const bool wrote = std::ranges::any_of(
        checkpoint.files, [&](const store::ShardFile& file) { return file.name == shard; });
    if (wrote && process.name.stage == 0) writers.push_back(process.name.replica);
  }
  if (writers.size() == static_cast<std::size_t>(plan.recipe.pipeline.replicas)) return;
  // Never equal to what saved_sync() writes, because that is a number only.
  checkpoint.sync["replicas"] = fmt::format(
      "{}, of which {} were left", plan.recipe.pipeline.replicas, fmt::join(writers, ", "));
  const auto caches = checkpoint.notes.find(kCachesNote);
  if (caches == checkpoint.notes.end()) return;
  caches->second += fmt::format("; of replicas {}", fmt::join(writers, ", "));
}

SyncResume decide_sync(const store::Manifest& checkpoint, const Plan& plan,
                       const std::set<std::uint32_t>& without) {
  const auto wanted = saved_sync(plan);
  if (checkpoint.sync == wanted && without.empty()) return {};
  std::vector<std::string> differences;
  for (const char* key : {"replicas", "method", "settings", "layers", "groups"}) {
    const std::string before = value_or_none(checkpoint.sync, key);
    const std::string now = value_or_none(wanted, key);
    if (before != now) differences.push_back(fmt::format("{} {} instead of {}", key, now, before));
  }
  if (!without.empty()) {
    differences.push_back(fmt::format("no replica {}", fmt::join(without, ", ")));
  }
  return {false, fmt::format("every replica starts from the agreed model of step {}, not from its "
                             "own state: the run resumes with {}",
                             number(checkpoint.step), fmt::join(differences, ", "))};
}

}  // namespace strait::plan
