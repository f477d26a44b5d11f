#include "launcher/compute/cpu_speed.h"

#include <ATen/Parallel.h>

#include <bit>
#include <fstream>

#include "framework/data/token_cache.h"
#include "framework/store/atomic_file.h"
#include "framework/store/store_error.h"
#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/base/own_program.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/speeds.h"
#include "launcher/worker/commands.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;

// A wider block is no faster, and takes longer to measure.
constexpr std::uint64_t kMostWidth = 1024;
constexpr std::uint64_t kLeastWidth = 64;
constexpr std::uint64_t kMostMeasuredTokens = 512;
constexpr std::uint64_t kLeastTokens = 128;

std::int64_t rounded_to_power(std::int64_t value, std::uint64_t least, std::uint64_t most) {
  const auto clamped =
      std::clamp(static_cast<std::uint64_t>(std::max<std::int64_t>(value, 1)), least, most);
  return static_cast<std::int64_t>(std::bit_floor(clamped + clamped / 4));
}

// The first one that the kernel lists; empty: it lists none.
std::string processor_name() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.starts_with("model name")) return line;
  }
  return "";
}

std::string config_of_width(std::int64_t width) {
  return fmt::format(R"({{"model_type": "gpt2", "vocab_size": 256, "n_positions": {}, )"
                     R"("n_embd": {}, "n_layer": 1, "n_head": {}}})",
                     kLeastTokens, width, std::max<std::int64_t>(width / 64, 1));
}

recipe::MeasuredHost measured_speed(const BlockSize& size) {
  const int before = at::get_num_threads();
  const auto started = std::chrono::steady_clock::now();
  const double waited_before = base::waited_for_cores().value_or(0);
  const auto row = static_cast<std::int64_t>(kLeastTokens);
  const hosts::ComputeMeasured measured = worker::measure_compute(
      {config_of_width(size.width), size.tokens / row, row, size.threads, /*gpu=*/false});
  const double waited = base::waited_for_cores().value_or(0) - waited_before;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  at::set_num_threads(before);
  recipe::MeasuredHost host;
  host.name = "this machine";
  host.flops_per_second = measured.flops_per_second;
  host.backward = measured.backward;
  host.threads = size.threads;
  host.memory_bytes_per_second = measured.memory_bytes_per_second;
  host.waited = waited / (took.count() * static_cast<double>(size.threads));
  return host;
}

// Nullopt: there is none, or its file is damaged.
std::optional<recipe::MeasuredHost> kept_speed(const fs::path& file) {
  std::error_code absent;
  if (!fs::exists(file, absent)) return std::nullopt;
  try {
    const recipe::LinkTable table = recipe::read_links(file);
    if (!table.hosts.empty()) return table.hosts.front();
  } catch (const base::UserError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

void keep_speed(const fs::path& file, const recipe::MeasuredHost& speed) {
  recipe::LinkTable table;
  table.hosts.push_back(speed);
  const std::string heading =
      "Measured by strait on this machine. Remove this file to measure again.";
  try {
    store::make_directory(file.parent_path());
    store::replace_file(file, recipe::write_links(table, heading));
  } catch (const store::StoreError&) {
    return;  // a full disk only means that it is measured again
  }
}

// The width of the recipe's model and what a process of it computes; nullopt: not on this CPU.
std::optional<BlockSize> block_of(const recipe::Recipe& recipe) {
  if (recipe.hosts.backend != recipe::BackendKind::local || !recipe.hosts.links.empty()) {
    return std::nullopt;
  }
  const bool on_cpu =
      recipe.model.device == recipe::Device::cpu ||
      (recipe.model.device == recipe::Device::automatic && base::gpus_here().empty());
  if (!on_cpu) return std::nullopt;
  const models::ModelConfig config =
      models::parse_config(planner::read_config(recipe.model.path, false), "config.json");
  const recipe::Recipe::Pipeline& pipeline = recipe.pipeline;
  const bool open = pipeline.choose_stages || pipeline.choose_replicas;
  const std::int64_t processes = open ? 1 : pipeline.stages * pipeline.replicas;
  const std::int64_t width =
      models::describe(config, {recipe.data.row, static_cast<std::int64_t>(sizeof(float))}).hidden;
  return block_size(width, recipe.train.micro_batch.value_or(1) * recipe.data.row,
                    planner::threads_of(recipe, processes), base::usable_cores());
}

}  // namespace

BlockSize block_size(std::int64_t width, std::int64_t tokens, std::int64_t threads,
                     std::int64_t cores) {
  return {rounded_to_power(width, kLeastWidth, kMostWidth),
          rounded_to_power(tokens, kLeastTokens, kMostMeasuredTokens),
          std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(cores, 1))};
}

fs::path file_of_speed(const BlockSize& size, const fs::path& folder) {
  const std::string key =
      fmt::format("{}\n{}\n{}\n{} {} {}", processor_name(), base::usable_cores(), base::build_id(),
                  size.width, size.tokens, size.threads);
  return folder / (store::hash_text(key) + ".toml");
}

recipe::MeasuredHost cpu_speed(const std::string& host, const BlockSize& size,
                               const fs::path& folder) {
  const fs::path file = file_of_speed(size, folder);
  const auto kept = folder.empty() ? std::nullopt : kept_speed(file);
  recipe::MeasuredHost speed = kept ? *kept : measured_speed(size);
  if (!kept && !folder.empty() && !plan::measured_under_load(speed)) keep_speed(file, speed);
  speed.name = host;
  return speed;
}

planner::PlannedRun plan_first(const recipe::Recipe& recipe) {
  recipe::LinkTable speeds;
  try {
    if (const auto size = block_of(recipe)) {
      speeds.hosts.push_back(
          cpu_speed(plan::hosts_of(recipe).front().name, *size, data::cache_folder("speeds")));
    }
  } catch (const std::exception&) {
    speeds.hosts.clear();  // make_plan() says what is wrong with the model
  }
  return planner::make_plan(recipe, nullptr, speeds.empty() ? nullptr : &speeds);
}

}  // namespace strait::compute
