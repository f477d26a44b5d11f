#include <fmt/format.h>

#include <algorithm>

#include "launcher/plan/plan.h"
#include "models/model_config.h"

namespace strait::launcher {
namespace {

std::string human_bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000) return fmt::format("{} B", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string human_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count < 1'000'000) return fmt::format("{:.1f} k", value / 1e3);
  if (count < 1'000'000'000) return fmt::format("{:.2f} M", value / 1e6);
  return fmt::format("{:.2f} G", value / 1e9);
}

// "embedding, blocks 0-5", "blocks 6-11, head": as the weight files number them.
std::string layers_in_words(const models::LayerRange& range, int layers) {
  const int head = layers - 1;
  const int first = std::max(range.first, 1) - 1;
  const int last = std::min(range.last, head - 1) - 1;
  std::string words = range.first == 0 ? "embedding, " : "";
  words +=
      first == last ? fmt::format("block {}", first) : fmt::format("blocks {}-{}", first, last);
  return words + (range.last == head ? ", head" : "");
}

}  // namespace

std::string describe(const Plan& plan) {
  const Recipe& recipe = plan.recipe;
  const models::ModelConfig config =
      models::parse_config(plan.model_config, recipe.model.path + "/config.json");
  const models::ModelDescription model = models::describe(config, {recipe.data.row, 4});
  std::string text = fmt::format(
      "{}: {} with {} parameters, {} steps of {} rows of {} tokens ({} micro-batches of {})\n"
      "schedule {}, depth {}; codec {} {} forward, {} {} backward; {} training rows",
      recipe.name, model.family, human_count(model.parameters()), plan.steps, recipe.train.batch,
      recipe.data.row, plan.micro_batches, *recipe.train.micro_batch,
      name_of(recipe.pipeline.schedule), plan.depth, name_of(recipe.codec.forward),
      name_of(recipe.codec.wire_dtype), name_of(recipe.codec.backward),
      name_of(recipe.codec.wire_dtype), plan.train.rows);
  if (plan.eval) text += fmt::format(", {} evaluation rows", plan.eval->rows);
  text += fmt::format("\n\n  {:<8}{:<12}{:<24}{:>12}{:>14}{:>14}{:>9}\n", "stage", "host", "layers",
                      "parameters", "state", "activations", "threads");
  for (const Plan::Process& process : plan.processes) {
    text += fmt::format("  {:<8}{:<12}{:<24}{:>12}{:>14}{:>14}{:>9}\n", process.name.text(),
                        process.host,
                        layers_in_words(process.layers, static_cast<int>(model.layers.size())),
                        human_count(process.parameters), human_bytes(process.state_bytes),
                        human_bytes(process.activation_bytes), process.threads);
  }
  if (!plan.links.empty()) {
    text +=
        fmt::format("\n  {:<20}{:<24}{:>16}{:>16}\n", "link", "", "down per step", "up per step");
  }
  for (const Plan::Link& link : plan.links) {
    const bool same_host = plan.process(link.connects).host == plan.process(link.listens).host;
    text += fmt::format("  {:<20}{:<24}{:>16}{:>16}\n", link.name,
                        same_host ? "CURVE over loopback" : "CURVE over TCP",
                        human_bytes(link.forward_bytes), human_bytes(link.backward_bytes));
  }
  return text;
}

}  // namespace strait::launcher
