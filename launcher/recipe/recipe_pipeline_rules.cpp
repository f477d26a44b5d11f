#include <fmt/ranges.h>

#include <numeric>

#include "launcher/recipe/recipe_assembly.h"

namespace strait::recipe {
namespace {

// The stated rows of each replica.
void check_rows(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const auto rows = recipe.pipeline.rows.value_or(std::vector<std::int64_t>());
  if (rows.empty()) return;
  const auto object = [&](const std::string& why) {
    mistakes.push_back(fmt::format("pipeline.rows is [{}] ({}), but {}", fmt::join(rows, ", "),
                                   at({"pipeline.rows"}), why));
  };
  const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const std::int64_t micro_batch = recipe.train.micro_batch.value_or(1);
  if (recipe.pipeline.choose_replicas) {
    object("pipeline.replicas is \"auto\"; state both, or leave pipeline.rows out");
  } else if (std::ssize(rows) != recipe.pipeline.replicas) {
    object(fmt::format("pipeline.replicas is {}; state the rows of each replica",
                       recipe.pipeline.replicas));
  } else if (sum != recipe.train.batch) {
    object(fmt::format("train.batch is {}; make them sum to it", recipe.train.batch));
  } else if (std::ranges::any_of(rows, [&](auto one) { return one % micro_batch != 0; })) {
    object(fmt::format("train.micro_batch is {}; make each a multiple of it", micro_batch));
  }
}

// The parts of rows that a micro-batch crosses in.
void check_slices(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const std::int64_t slices = recipe.pipeline.slices.value_or(1);
  if (slices == 1) return;
  if (recipe.data.row % slices != 0) {
    mistakes.push_back(
        fmt::format("pipeline.slices is {} ({}), but data.row is {}; make it a divisor of that",
                    slices, at({"pipeline.slices", "data.row"}), recipe.data.row));
  }
  if (recipe.model.recompute == Recompute::offload) {
    mistakes.push_back(fmt::format(
        "pipeline.slices is {} ({}), but model.recompute is \"offload\", which brings back whole "
        "micro-batches; leave one of them out",
        slices, at({"pipeline.slices", "model.recompute"})));
  }
  if (recipe.train.preference.loss != PreferenceKind::none) {
    mistakes.push_back(
        fmt::format("pipeline.slices is {} ({}), but train.preference.loss is \"{}\", which is of "
                    "whole answers; leave one of them out",
                    slices, at({"pipeline.slices", "train.preference.loss"}),
                    name_of(recipe.train.preference.loss)));
  }
}

}  // namespace

void check_pipeline(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const Recipe::Pipeline& pipeline = recipe.pipeline;
  const std::int64_t stages = pipeline.stages;
  const std::int64_t replicas = pipeline.replicas;
  const std::optional<std::int64_t>& chunks = pipeline.chunks;
  const Recipe::Partition& partition = pipeline.partition;
  const std::vector<std::string>& hosts = pipeline.hosts;
  check_rows(recipe, at, mistakes);
  check_slices(recipe, at, mistakes);
  const auto rows = recipe.train.micro_batch.value_or(1) * replicas;
  if (pipeline.rows.value_or(std::vector<std::int64_t>()).empty() &&
      recipe.train.batch % rows != 0) {
    mistakes.push_back(fmt::format(
        "train.batch is {} ({}), but must be a multiple of {}: train.micro_batch {} times "
        "pipeline.replicas {}",
        recipe.train.batch, at({"train.batch", "train.micro_batch", "pipeline.replicas"}), rows,
        recipe.train.micro_batch.value_or(1), replicas));
  }
  if ((pipeline.choose_stages || pipeline.choose_replicas) && !hosts.empty()) {
    mistakes.push_back(
        fmt::format("pipeline.hosts is set while pipeline.stages or pipeline.replicas is \"auto\" "
                    "({}); set all three, or leave pipeline.hosts out: it is chosen with them",
                    at({"pipeline.hosts", "pipeline.stages", "pipeline.replicas"})));
  } else if (!hosts.empty() && std::ssize(hosts) != stages * replicas) {
    mistakes.push_back(fmt::format(
        "pipeline.hosts has {} names, but the run has {} processes, pipeline.stages {} times "
        "pipeline.replicas {} ({}); name a host for each, by replica, then by stage",
        hosts.size(), stages * replicas, stages, replicas,
        at({"pipeline.hosts", "pipeline.stages", "pipeline.replicas"})));
  }
  for (const std::string& host : hosts) {
    if (std::ranges::find(recipe.hosts.list, host, &RecipeHost::name) != recipe.hosts.list.end()) {
      continue;
    }
    mistakes.push_back(fmt::format("pipeline.hosts names {} ({}), which is not in hosts.list", host,
                                   at({"pipeline.hosts"})));
    break;
  }
  const std::int64_t ranges = std::ssize(partition.ranges);
  if (partition.kind == PartitionKind::ranges &&
      (chunks ? ranges != stages * *chunks : ranges % stages != 0)) {
    mistakes.push_back(
        fmt::format("pipeline.partition has {} ranges, but pipeline.stages is {}{} ({})", ranges,
                    stages, chunks ? fmt::format(" and pipeline.chunks {}", *chunks) : "",
                    at({"pipeline.partition", "pipeline.stages", "pipeline.chunks"})));
  }
}

}  // namespace strait::recipe
