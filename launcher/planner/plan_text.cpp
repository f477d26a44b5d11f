#include "launcher/planner/plan_text.h"

#include <fmt/format.h>

#include "launcher/base/machine.h"
#include "launcher/base/text.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/speeds.h"

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
  if (codec.forward == "transform") {
    return fmt::format("transform, as exact as {} bits ({} on a cache miss)", codec.forward_bits,
                       first);
  }
  return codec.forward;  // of a plugin
}

std::string text_of_backward(const recipe::Recipe::Codec& codec) {
  if (codec.backward == "raw") return fmt::format("raw {}", recipe::name_of(codec.wire_dtype));
  if (codec.backward == "delta") {
    return fmt::format("delta {} bits ({} as values)", codec.backward_bits,
                       std::max<std::int64_t>(codec.backward_bits, 4));
  }
  if (codec.backward == "transform") {
    return fmt::format("transform, as exact as {} bits", codec.backward_bits);
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
      const std::int64_t needed = plan::gpu_memory_needed(plan, host, gpu);
      if (needed == 0 || (*gpus)[gpu] == 0) continue;
      text += fmt::format("  GPU {} of {}: {} of its {}\n", gpu, plan.hosts[host].name,
                          base::byte_text(needed), base::byte_text((*gpus)[gpu]));
    }
  }
  return text.empty() ? text : "\n" + text;
}

using base::TextColumn;
using ColumnKind = TextColumn::Kind;

// A column whose cells are those of `cell(row)`.
template <class Rows, class Cell>
TextColumn plan_column(std::string heading, const Rows& rows, const Cell& cell,
                       ColumnKind kind = ColumnKind::number) {
  TextColumn made{std::move(heading), {}, kind};
  for (const auto& row : rows) made.cells.push_back(cell(row));
  return made;
}

// A process has a row for each of its chunks: all but the layers are in the first.
std::string process_table(const plan::Plan& plan, const models::ModelDescription& model,
                          std::size_t columns) {
  using Process = plan::Plan::Process;
  std::vector<std::pair<const Process*, std::size_t>> rows;
  for (const Process& process : plan.processes) {
    for (std::size_t chunk = 0; chunk < process.chunks.size(); ++chunk) {
      rows.emplace_back(&process, chunk);
    }
  }
  std::vector<TextColumn> table;
  const auto add = [&](const char* heading, ColumnKind kind, const auto& cell) {
    table.push_back(plan_column(
        heading, rows,
        [&](const auto& row) { return row.second == 0 ? cell(*row.first) : std::string(); }, kind));
  };
  const auto add_bytes = [&](const char* heading, const auto& bytes) {
    add(heading, ColumnKind::number,
        [&](const Process& one) { return base::byte_text(bytes(one)); });
  };
  add("stage", ColumnKind::key, [](const Process& one) { return one.name.text(); });
  add("host", ColumnKind::text, [](const Process& one) { return one.host; });
  add("device", ColumnKind::text, [&](const Process& one) { return text_of_device(plan, one); });
  table.push_back(plan_column(
      "layers", rows,
      [&](const auto& row) {
        return text_of_layers(row.first->chunks[row.second], static_cast<int>(model.layers.size()));
      },
      ColumnKind::text));
  add("parameters", ColumnKind::number,
      [](const Process& one) { return human_count(one.parameters); });
  add_bytes("state", [](const Process& one) { return one.state_bytes; });
  const auto offloaded = [](const Process& one) { return one.offloaded_bytes + one.waiting_bytes; };
  if (std::ranges::any_of(plan.processes, [&](const auto& one) { return offloaded(one) > 0; })) {
    add_bytes("off-loaded", offloaded);
  }
  const auto on_disk = [](const Process& one) { return one.disk_bytes; };
  if (std::ranges::any_of(plan.processes, [&](const auto& one) { return on_disk(one) > 0; })) {
    add_bytes("on disk", on_disk);
  }
  add_bytes("activations", [](const Process& one) { return one.activation_bytes; });
  if (std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache)) {
    add_bytes("caches", [](const Process& one) { return one.cache_bytes; });
  }
  const auto sync_bytes = [](const Process& one) { return one.sync_bytes; };
  if (std::ranges::any_of(plan.processes, [&](const auto& one) { return sync_bytes(one) > 0; })) {
    add_bytes("sync", sync_bytes);
  }
  if (plan::saves_during_training(plan.recipe)) {
    add_bytes("saving", [&](const Process& one) { return plan.snapshot_bytes(one); });
  }
  add("threads", ColumnKind::number,
      [](const Process& one) { return std::to_string(one.threads); });
  return "\n" + base::table_text(table, columns);
}

std::string link_table(const plan::Plan& plan, std::size_t columns) {
  if (plan.links.empty()) return "";
  using Link = plan::Plan::Link;
  const auto medium = [&](const Link& link) -> std::string {
    const std::string& only = plan.recipe.hosts.simulate_link;
    if (plan.recipe.hosts.simulate.any() && (only.empty() || only == link.name)) {
      return "CURVE, simulated";
    }
    if (plan::shares_memory(plan, link)) return "shared memory";
    const bool same_host = plan.process(link.connects).host == plan.process(link.listens).host;
    return same_host ? "CURVE over loopback" : "CURVE over TCP";
  };
  std::vector<TextColumn> table = {
      plan_column(
          "link", plan.links, [](const Link& link) { return link.name; }, ColumnKind::key),
      plan_column("", plan.links, medium, ColumnKind::text)};
  const auto add_bytes = [&](const char* heading, std::int64_t Link::*bytes) {
    table.push_back(plan_column(heading, plan.links,
                                [&](const Link& link) { return base::byte_text(link.*bytes); }));
  };
  if (std::ranges::any_of(plan.links, [](const Link& link) {
        return link.has_cache() || link.first_forward_bytes != link.forward_bytes;
      })) {
    add_bytes("in epoch 1", &Link::first_forward_bytes);
  }
  add_bytes("down per step", &Link::forward_bytes);
  add_bytes("up per step", &Link::backward_bytes);
  return "\n" + base::table_text(table, columns);
}

// Activation caches: how many sequences fit, and their memory and disk.
std::string cache_table(const plan::Plan& plan, std::size_t columns) {
  std::vector<plan::Plan::Link> links;
  std::ranges::copy_if(plan.links, std::back_inserter(links), &plan::Plan::Link::has_cache);
  if (links.empty()) return "";
  using Link = plan::Plan::Link;
  // Of several slices, each is cached by itself.
  const char* const part = plan.slices > 1 ? "slice" : "row";
  const std::int64_t rows =
      plan.slices *
      (plan.replica_rows.empty()
           ? plan.train.rows / plan.recipe.pipeline.replicas
           : plan.train.rows * std::ranges::max(plan.replica_rows) / plan.recipe.train.batch);
  const std::int64_t directions = cached_directions(plan.recipe.codec, true);
  const auto on_disk = [](const codec::CacheLimits& cache) {
    return cache.rows * cache.entry_bytes - cache.used_memory();
  };
  std::string text =
      "\n" +
      base::table_text(
          {plan_column(
               "activation cache", links, [](const Link& one) { return one.name; },
               ColumnKind::key),
           plan_column(fmt::format("a {}", part), links,
                       [](const Link& one) { return base::byte_text(one.cache.entry_bytes); }),
           plan_column(
               fmt::format("{}s that fit", part), links,
               [&](const Link& one) { return fmt::format("{} of {}", one.cache.rows, rows); }),
           plan_column("memory, each end", links,
                       [&](const Link& one) {
                         return base::byte_text(directions * one.cache.used_memory());
                       }),
           plan_column(
               "disk, each end", links,
               [&](const Link& one) { return base::byte_text(directions * on_disk(one.cache)); })},
          columns);
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
std::string sync_offer_table(const plan::Plan& plan, std::size_t columns) {
  if (plan.sync_offers.empty()) return "";
  using Offer = plan::Plan::SyncOffer;
  const auto& offers = plan.sync_offers;
  const auto name = [&](const Offer& offer) {
    return (&offer == chosen_offer(plan) ? "* " : "  ") + offer.name();
  };
  const auto bytes = [&](const char* heading, std::int64_t Offer::*member) {
    return plan_column(heading, offers,
                       [&](const Offer& offer) { return base::byte_text(offer.*member); });
  };
  return "\n" +
         base::table_text(
             {plan_column("  sync method", offers, name, ColumnKind::key),
              bytes("sent a step", &Offer::step_bytes), bytes("in a round", &Offer::round_bytes),
              bytes("memory", &Offer::slot_bytes),
              plan_column("steps late", offers,
                          [](const Offer& one) { return fmt::format("{:.3g}", one.staleness); }),
              plan_column(
                  "a step", offers,
                  [](const Offer& one) { return fmt::format("{:.3g} s", one.step_seconds); }),
              plan_column("slower", offers,
                          [](const Offer& one) { return fmt::format("{:.2f}x", one.slowdown); })},
             columns);
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
  return fmt::format("\na checkpoint in memory every {}{}; at most: {}\n",
                     every == 1 ? "step" : base::counted(every, "step"),
                     copies ? ", with a copy on the next host" : "", fmt::join(shares, ", "));
}

// Warns if the processes of a run on this machine need more memory than it has; a start would be
// refused.
std::string text_of_lacking_memory(const plan::Plan& plan) {
  if (plan.recipe.hosts.backend != recipe::BackendKind::local) return "";
  const std::int64_t memory = base::host_memory().total;
  const std::int64_t needed = plan::held_bytes(plan, 0) + plan::host_memory_needed(plan, 0);
  if (memory == 0 || needed <= memory) return "";
  return fmt::format(
      "\nall processes together need {} of memory, and this machine has {}: a run will be "
      "refused\n",
      base::byte_text(needed), base::byte_text(memory));
}

}  // namespace

std::string plan_text(const plan::Plan& plan, std::size_t columns) {
  const recipe::Recipe& recipe = plan.recipe;
  const models::ModelDescription model =
      models::describe(planned_model(plan), {recipe.data.row, 4});
  std::string text = fmt::format(
      "{}: {} with {} parameters{}, {} of {} of {} ({}{} of {})\n"
      "schedule {}{}, depth {}{}; codec {} forward, {} backward{}; {}",
      recipe.name, model.family, human_count(model.parameters()),
      text_of_trained(model, recipe.model.quantization), base::counted(plan.steps, "step"),
      base::counted(recipe.train.batch, "row"), base::counted(recipe.data.row, "token"),
      plan.replica_rows.empty() ? "" : "at most ",
      base::counted(plan.micro_batches, "micro-batch", "es"), plan.micro_batch_rows(),
      recipe.pipeline.schedule, text_of_chunks(plan), plan.depth,
      plan.slices == 1 ? "" : fmt::format(", {} slices of rows", plan.slices),
      text_of_forward(recipe.codec), text_of_backward(recipe.codec), text_of_sync(plan),
      base::counted(plan.train.rows, "training row"));
  if (plan.eval) text += ", " + base::counted(plan.eval->rows, "evaluation row");
  return text + "\n" + layout_table(plan, columns) + process_table(plan, model, columns) +
         gpu_table(plan) + link_table(plan, columns) + cache_table(plan, columns) +
         sync_offer_table(plan, columns) + text_of_memory_checkpoints(plan) +
         text_of_lacking_memory(plan) + load_text(plan) + forecast_text(plan);
}

}  // namespace strait::planner
