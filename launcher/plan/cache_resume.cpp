#include "launcher/plan/cache_resume.h"

#include <fmt/format.h>

#include <algorithm>

namespace strait::plan {
namespace {

// The layer that a boundary is behind.
int layer_above(const Plan& plan, const Plan::Link& link) {
  const auto chunk = static_cast<std::size_t>(link.position / plan.recipe.pipeline.stages);
  return plan.process(link.connects).chunks.at(chunk).last;
}

bool has_caches(const Plan& plan) {
  return std::ranges::any_of(plan.links, &Plan::Link::has_cache);
}

}  // namespace

std::string caches_kept(const Plan& plan) {
  if (plan.recipe.checkpoint.caches == recipe::SavedCaches::drop) return "";
  std::string words;
  for (const Plan::Link& link : plan.links) {
    if (!link.has_cache()) continue;
    words += fmt::format("{}{} behind layer {}: {}, {} bytes a row, {} in memory, {} on disk",
                         words.empty() ? "" : "; ", link.name, layer_above(plan, link),
                         name_of(plan.recipe.codec.cache_kind), link.entry_bytes, link.cache_bytes,
                         link.cache_disk_bytes);
  }
  return words;
}

CacheResume decide_caches(const store::Manifest& checkpoint, const Plan& plan) {
  CacheResume resume;
  resume.generation = checkpoint.codec_generation;
  if (!has_caches(plan)) return resume;
  const auto note = checkpoint.notes.find(kCachesNote);
  const std::string wanted = caches_kept(plan);
  if (wanted.empty()) {
    resume.dropped = "checkpoint.caches is \"drop\"";
  } else if (note == checkpoint.notes.end()) {
    resume.dropped = fmt::format("the checkpoint of step {} holds none", number(checkpoint.step));
  } else if (note->second != wanted) {
    resume.dropped = fmt::format(
        "the checkpoint holds those of another pipeline ({}) than the one "
        "that goes on ({})",
        note->second, wanted);
  }
  resume.restore = resume.dropped.empty();
  if (resume.restore) return resume;
  ++resume.generation;
  resume.dropped = fmt::format(
      "what the boundaries remembered of samples is dropped at all ends: {}; every sample's next "
      "visit is a first one (codec generation {})",
      resume.dropped, resume.generation);
  return resume;
}

}  // namespace strait::plan
