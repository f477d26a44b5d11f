#include "launcher/planner/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/plan/gpu_memory.h"
#include "launcher/plan/memory_copies.h"
#include "launcher/plan/plan.h"
#include "launcher/planner/forecast_text.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/process/memory.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "models/model_description.h"

namespace strait::planner {
namespace {

std::string human_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count < 1'000'000) return fmt::format("{:.1f} k", value / 1e3);
  if (count < 1'000'000'000) return fmt::format("{:.2f} M", value / 1e6);
  return fmt::format("{:.2f} G", value / 1e9);
}

// "embedding, blocks 0-5", "blocks 6-11, head": as the weight files number them.
std::string text_of_layers(const models::LayerRange& range, int layers) {
  const int head = layers - 1;
  const int first = std::max(range.first, 1) - 1;
  const int last = std::min(range.last, head - 1) - 1;
  std::vector<std::string> words;
  if (range.first == 0) words.emplace_back("embedding");
  if (first == last) words.push_back(fmt::format("block {}", first));
  if (first < last) words.push_back(fmt::format("blocks {}-{}", first, last));
  if (range.last == head) words.emplace_back("head");
  return fmt::format("{}", fmt::join(words, ", "));
}

// "raw bfloat16", "delta 4 bits (8 bits on a cache miss)".
std::string text_of_forward(const recipe::Recipe::Codec& codec) {
  const auto first =
      codec.first_bits == 16 ? std::string("bfloat16") : fmt::format("{} bits", codec.first_bits);
  if (codec.forward == "raw") return fmt::format("raw {}", recipe::name_of(codec.wire_dtype));
  if (codec.forward == "fixed") return fmt::format("fixed {} bits", codec.forward_bits);
  if (codec.forward == "delta" || codec.forward == "auto") {
    return fmt::format("{} {}{} bits ({} on a cache miss)", codec.forward,
                       codec.forward == "auto" ? "from " : "", codec.forward_bits, first);
  }
  return codec.forward;  // of a plugin
}

std::string text_of_backward(const recipe::Recipe::Codec& codec) {
  if (codec.backward == "raw") return fmt::format("raw {}", recipe::name_of(codec.wire_dtype));
  if (codec.backward == "delta") {
    return fmt::format("delta {} bits ({} as values)", codec.backward_bits,
                       std::max<std::int64_t>(codec.backward_bits, 4));
  }
  if (codec.backward != "fixed" && codec.backward != "auto") return codec.backward;
  return fmt::format("{} {}{} bits", codec.backward, codec.backward == "auto" ? "from " : "",
                     codec.backward_bits);
}

// "cpu", "cuda:1". "auto": the host has not reported its GPUs yet.
std::string text_of_device(const plan::Plan& plan, const plan::Plan::Process& process) {
  if (const auto gpu = plan.gpu_of(process)) return fmt::format("cuda:{}", *gpu);
  const bool known = plan.hosts.at(process.host_index).gpus.has_value();
  return known ? "cpu" : std::string(recipe::name_of(plan.recipe.model.device));
}

// "GPU 0 of b: 12.1 GiB of 80 GiB", for each GPU that is known and used.
std::string gpu_table(const plan::Plan& plan) {
  std::string text;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const auto& gpus = plan.hosts[host].gpus;
    for (std::size_t gpu = 0; gpus && gpu < gpus->size(); ++gpu) {
      std::int64_t needed = 0;
      for (const plan::Plan::Process& process : plan.processes) {
        if (process.host_index != host || plan.gpu_of(process) != gpu) continue;
        needed += plan::Plan::compute_bytes(process) + plan::kGpuContextBytes;
      }
      if (needed == 0 || (*gpus)[gpu] == 0) continue;
      text += fmt::format("  GPU {} of {}: {} of its {}\n", gpu, plan.hosts[host].name,
                          base::byte_text(needed), base::byte_text((*gpus)[gpu]));
    }
  }
  return text.empty() ? text : "\n" + text;
}

std::string process_table(const plan::Plan& plan, const models::ModelDescription& model) {
  const auto optional_column = [](bool shown) {
    return [shown](const std::string& text) {
      return shown ? fmt::format("{:>12}", text) : std::string();
    };
  };
  const auto caches =
      optional_column(std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache));
  const auto saving = optional_column(plan::saves_during_training(plan.recipe));
  const auto rounds = optional_column(std::ranges::any_of(
      plan.processes, [](const auto& process) { return process.sync_bytes > 0; }));
  std::size_t column = 12;  // of hosts
  for (const plan::Plan::Process& process : plan.processes) {
    column = std::max(column, process.host.size() + 2);
  }
  std::string text =
      fmt::format("\n  {:<8}{:<{}}{:<8}{:<24}{:>12}{:>14}{:>14}{}{}{}{:>9}\n", "stage", "host",
                  column, "device", "layers", "parameters", "state", "activations",
                  caches("caches"), rounds("sync"), saving("saving"), "threads");
  for (const plan::Plan::Process& process : plan.processes) {
    const auto layers = static_cast<int>(model.layers.size());
    text += fmt::format(
        "  {:<8}{:<{}}{:<8}{:<24}{:>12}{:>14}{:>14}{}{}{}{:>9}\n", process.name.text(),
        process.host, column, text_of_device(plan, process),
        text_of_layers(process.chunks.front(), layers), human_count(process.parameters),
        base::byte_text(process.state_bytes), base::byte_text(process.activation_bytes),
        caches(base::byte_text(process.cache_bytes)), rounds(base::byte_text(process.sync_bytes)),
        saving(base::byte_text(plan.snapshot_bytes(process))), process.threads);
    for (std::size_t c = 1; c < process.chunks.size(); ++c) {
      text +=
          fmt::format("  {:<{}}{}\n", "", column + 16, text_of_layers(process.chunks[c], layers));
    }
  }
  return text;
}

// Width of the column of links.
std::size_t link_column(const plan::Plan& plan) {
  std::size_t width = 20;
  for (const plan::Plan::Link& link : plan.links) width = std::max(width, link.name.size() + 1);
  return width;
}

std::string link_table(const plan::Plan& plan) {
  if (plan.links.empty()) return "";
  const std::size_t column = link_column(plan);
  const bool cached = std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache);
  const auto first = [&](const std::string& text) {
    return cached ? fmt::format("{:>16}", text) : std::string();
  };
  std::string text = fmt::format("\n  {:<{}}{:<24}{}{:>16}{:>16}\n", "link", column, "",
                                 first("in epoch 1"), "down per step", "up per step");
  for (const plan::Plan::Link& link : plan.links) {
    const std::string& only = plan.recipe.hosts.simulate_link;
    const bool simulated = plan.recipe.hosts.simulate.any() && (only.empty() || only == link.name);
    const bool same_host = plan.process(link.connects).host == plan.process(link.listens).host;
    text += fmt::format("  {:<{}}{:<24}{}{:>16}{:>16}\n", link.name, column,
                        simulated   ? "CURVE, simulated"
                        : same_host ? "CURVE over loopback"
                                    : "CURVE over TCP",
                        first(base::byte_text(link.first_forward_bytes)),
                        base::byte_text(link.forward_bytes), base::byte_text(link.backward_bytes));
  }
  return text;
}

// Activation caches: how many sequences fit, and the memory and disk that they use.
std::string cache_table(const plan::Plan& plan) {
  if (std::ranges::none_of(plan.links, &plan::Plan::Link::has_cache)) return "";
  const std::int64_t rows = plan.train.rows / plan.recipe.pipeline.replicas;
  const std::size_t column = link_column(plan);
  std::string text = fmt::format("\n  {:<{}}{:>12}{:>20}{:>18}{:>16}\n", "activation cache", column,
                                 "a row", "rows that fit", "memory, each end", "disk, each end");
  for (const plan::Plan::Link& link : plan.links) {
    if (!link.has_cache()) continue;
    const codec::CacheLimits& cache = link.cache;
    const std::int64_t directions = cached_directions(plan.recipe.codec, true);
    text += fmt::format(
        "  {:<{}}{:>12}{:>20}{:>18}{:>16}\n", link.name, column, base::byte_text(cache.entry_bytes),
        fmt::format("{} of {}", cache.rows, rows),
        base::byte_text(directions * cache.used_memory()),
        base::byte_text(directions * (cache.rows * cache.entry_bytes - cache.used_memory())));
  }
  if (!fills_caches(plan)) {
    text += "  there is one epoch: no sample is used twice, and none is cached\n";
  }
  return text;
}

std::string text_of_chunks(const plan::Plan& plan) {
  const std::int64_t chunks = plan.processes.empty() ? 1 : plan.chunks();
  return chunks == 1 ? "" : fmt::format(", {} chunks a stage", chunks);
}

// "sync cocktail 0.1/0.2/4", "sync allreduce (auto chose it)".
std::string text_of_sync(const plan::Plan& plan) {
  if (plan.sync_method.empty()) return "";
  const std::string strength =
      plan.sync_strength ? fmt::format(" {}", plan.sync_strength->text()) : "";
  const std::string group = group_text(plan);
  return fmt::format("; {} replicas, sync {}{}{}{}", plan.recipe.pipeline.replicas,
                     plan.sync_method, strength, group,
                     plan.recipe.sync.method == recipe::kAutomaticSync ? " (auto chose it)" : "");
}

// The forecast of every method; the selected one is marked.
std::string sync_offer_table(const plan::Plan& plan) {
  if (plan.sync_offers.empty()) return "";
  std::string text =
      fmt::format("\n  {:<22}{:>14}{:>14}{:>14}{:>12}{:>12}{:>10}\n", "sync method", "sent a step",
                  "in a round", "memory", "steps late", "a step", "slower");
  for (const plan::Plan::SyncOffer& offer : plan.sync_offers) {
    const char* mark = &offer == chosen_offer(plan) ? "* " : "  ";
    text += fmt::format("{}{:<22}{:>14}{:>14}{:>14}{:>12.3g}{:>12}{:>10}\n", mark, offer.name(),
                        base::byte_text(offer.step_bytes), base::byte_text(offer.round_bytes),
                        base::byte_text(offer.slot_bytes), offer.staleness,
                        fmt::format("{:.3g} s", offer.step_seconds),
                        fmt::format("{:.2f}x", offer.slowdown));
  }
  return text;
}

// " (1.2 M trained, base nf4)"
std::string text_of_trained(const models::ModelDescription& model, recipe::Quantization base) {
  const std::int64_t trained = model.trained_parameters();
  if (trained == model.parameters()) return "";
  return fmt::format(
      " ({} trained{})", human_count(trained),
      base == recipe::Quantization::none ? "" : fmt::format(", base {}", recipe::name_of(base)));
}

// Which hosts hold checkpoints in memory, and how much memory that takes.
std::string text_of_memory_checkpoints(const plan::Plan& plan) {
  const std::int64_t every = plan.recipe.checkpoint.memory_every;
  if (every == 0) return "";
  std::vector<std::string> shares;
  const auto neighbours = plan::memory_neighbours(plan);
  bool copies = false;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const std::int64_t bytes = plan::held_bytes(plan, i);
    if (bytes > 0)
      shares.push_back(fmt::format("{} {}", plan.hosts[i].name, base::byte_text(bytes)));
    copies = copies || neighbours[i].has_value();
  }
  return fmt::format("\na checkpoint in memory every {} steps{}; at most: {}\n", every,
                     copies ? ", with a copy on the next host" : "", fmt::join(shares, ", "));
}

// Warns if the processes of a run on this machine need more memory than it has; a start would be
// refused.
std::string text_of_lacking_memory(const plan::Plan& plan) {
  if (plan.recipe.hosts.backend != recipe::BackendKind::local) return "";
  const std::int64_t memory = process::host_memory().total;
  const std::int64_t needed = plan::held_bytes(plan, 0) + plan::host_memory_needed(plan, 0);
  if (memory == 0 || needed <= memory) return "";
  return fmt::format(
      "\nall processes together need {} of memory, and this machine has {}: a run will be "
      "refused\n",
      base::byte_text(needed), base::byte_text(memory));
}

}  // namespace

std::string plan_text(const plan::Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe;
  const models::ModelDescription model =
      models::describe(planned_model(plan), {recipe.data.row, 4});
  std::string text = fmt::format(
      "{}: {} with {} parameters{}, {} steps of {} rows of {} tokens ({} micro-batches of {})\n"
      "schedule {}{}, depth {}; codec {} forward, {} backward{}; {} training rows",
      recipe.name, model.family, human_count(model.parameters()),
      text_of_trained(model, recipe.model.quantization), plan.steps, recipe.train.batch,
      recipe.data.row, plan.micro_batches, plan.micro_batch_rows(), recipe.pipeline.schedule,
      text_of_chunks(plan), plan.depth, text_of_forward(recipe.codec),
      text_of_backward(recipe.codec), text_of_sync(plan), plan.train.rows);
  if (plan.eval) text += fmt::format(", {} evaluation rows", plan.eval->rows);
  return text + "\n" + process_table(plan, model) + gpu_table(plan) + link_table(plan) +
         cache_table(plan) + sync_offer_table(plan) + text_of_memory_checkpoints(plan) +
         text_of_lacking_memory(plan) + forecast_text(plan);
}

}  // namespace strait::planner
