#include "launcher/planner/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/plan/plan.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "models/model_description.h"

namespace strait::planner {
namespace {

std::string human_bytes(std::int64_t bytes) {
  return base::byte_text(static_cast<std::uint64_t>(bytes));
}

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

std::string process_table(const plan::Plan& plan, const models::ModelDescription& model) {
  const bool cached = std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache);
  const auto caches = [&](const std::string& text) {
    return cached ? fmt::format("{:>12}", text) : std::string();
  };
  std::size_t column = 12;  // of hosts
  for (const plan::Plan::Process& process : plan.processes) {
    column = std::max(column, process.host.size() + 2);
  }
  const bool beside = plan::saves_beside_training(plan.recipe);
  const auto saving = [&](const std::string& text) {
    return beside ? fmt::format("{:>12}", text) : std::string();
  };
  std::string text = fmt::format("\n  {:<8}{:<{}}{:<24}{:>12}{:>14}{:>14}{}{}{:>9}\n", "stage",
                                 "host", column, "layers", "parameters", "state", "activations",
                                 caches("caches"), saving("saving"), "threads");
  for (const plan::Plan::Process& process : plan.processes) {
    const auto layers = static_cast<int>(model.layers.size());
    text +=
        fmt::format("  {:<8}{:<{}}{:<24}{:>12}{:>14}{:>14}{}{}{:>9}\n", process.name.text(),
                    process.host, column, text_of_layers(process.chunks.front(), layers),
                    human_count(process.parameters), human_bytes(process.state_bytes),
                    human_bytes(process.activation_bytes), caches(human_bytes(process.cache_bytes)),
                    saving(human_bytes(plan.snapshot_bytes(process))), process.threads);
    for (std::size_t c = 1; c < process.chunks.size(); ++c) {
      text +=
          fmt::format("  {:<{}}{}\n", "", column + 8, text_of_layers(process.chunks[c], layers));
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
  const bool simulated = plan.recipe.hosts.simulate.any();
  const bool cached = std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache);
  const auto first = [&](const std::string& text) {
    return cached ? fmt::format("{:>16}", text) : std::string();
  };
  std::string text = fmt::format("\n  {:<{}}{:<24}{}{:>16}{:>16}\n", "link", column, "",
                                 first("in epoch 1"), "down per step", "up per step");
  for (const plan::Plan::Link& link : plan.links) {
    const bool same_host = plan.process(link.connects).host == plan.process(link.listens).host;
    text += fmt::format("  {:<{}}{:<24}{}{:>16}{:>16}\n", link.name, column,
                        simulated   ? "CURVE, simulated"
                        : same_host ? "CURVE over loopback"
                                    : "CURVE over TCP",
                        first(human_bytes(link.first_forward_bytes)),
                        human_bytes(link.forward_bytes), human_bytes(link.backward_bytes));
  }
  return text;
}

// Activation caches: how many sequences fit, and their memory and disk.
std::string cache_table(const plan::Plan& plan) {
  if (std::ranges::none_of(plan.links, &plan::Plan::Link::has_cache)) return "";
  const std::int64_t rows = plan.train.rows / plan.recipe.pipeline.replicas;
  const std::size_t column = link_column(plan);
  std::string text = fmt::format("\n  {:<{}}{:>12}{:>20}{:>18}{:>16}\n", "activation cache", column,
                                 "a row", "rows that fit", "memory, each end", "disk, each end");
  for (const plan::Plan::Link& link : plan.links) {
    if (!link.has_cache()) continue;
    const codec::CacheLimits& cache = link.cache;
    const std::int64_t directions = cached_directions(plan.recipe.codec);
    text += fmt::format(
        "  {:<{}}{:>12}{:>20}{:>18}{:>16}\n", link.name, column, human_bytes(cache.entry_bytes),
        fmt::format("{} of {}", cache.rows, rows), human_bytes(directions * cache.used_memory()),
        human_bytes(directions * (cache.rows * cache.entry_bytes - cache.used_memory())));
  }
  if (plan.steps <= plan.epoch_steps) {
    text += "  there is one epoch: no sample is used twice, and none is cached\n";
  }
  return text;
}

std::string text_of_chunks(const plan::Plan& plan) {
  const std::int64_t chunks = plan.processes.empty() ? 1 : plan.chunks();
  return chunks == 1 ? "" : fmt::format(", {} chunks a stage", chunks);
}

bool is_selected(const plan::Plan::SyncOffer& offer, const plan::Plan& plan) {
  return offer.method == plan.sync_method && offer.strength == plan.sync_strength;
}

// "sync cocktail 0.1/0.2/4", "sync allreduce (auto chose it)".
std::string text_of_sync(const plan::Plan& plan) {
  if (plan.sync_method.empty()) return "";
  const std::string strength =
      plan.sync_strength ? fmt::format(" {}", plan.sync_strength->text()) : "";
  const std::string group = group_text(plan);
  return fmt::format("; {} replicas, sync {}{}{}{}", plan.recipe.pipeline.replicas,
                     plan.sync_method, strength, group.empty() ? "" : " " + group,
                     plan.recipe.sync.method == recipe::kAutomaticSync ? " (auto chose it)" : "");
}

// The forecast of every method; the selected one is marked.
std::string sync_offer_table(const plan::Plan& plan) {
  if (plan.sync_offers.empty()) return "";
  std::string text =
      fmt::format("\n  {:<22}{:>14}{:>14}{:>14}{:>12}{:>12}{:>10}\n", "sync method", "sent a step",
                  "in a round", "memory", "steps late", "a step", "slower");
  for (const plan::Plan::SyncOffer& offer : plan.sync_offers) {
    const char* mark = is_selected(offer, plan) ? "* " : "  ";
    text += fmt::format("{}{:<22}{:>14}{:>14}{:>14}{:>12.3g}{:>12}{:>10}\n", mark, offer.name(),
                        human_bytes(offer.step_bytes), human_bytes(offer.round_bytes),
                        human_bytes(offer.slot_bytes), offer.staleness,
                        fmt::format("{:.3g} s", offer.step_seconds),
                        fmt::format("{:.2f}x", offer.slowdown));
  }
  return text;
}

std::string text_of_rate(double bytes_per_second) {
  const double bits = bytes_per_second * 8;
  return bits < 1e9 ? fmt::format("{:.3g} Mbit/s", bits / 1e6)
                    : fmt::format("{:.3g} Gbit/s", bits / 1e9);
}

// The first few of a list that may be long.
std::string some_of(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 6;
  if (words.size() <= kShown) return fmt::format("{}", fmt::join(words, ", "));
  const std::vector<std::string> first(words.begin(), words.begin() + kShown);
  return fmt::format("{} and {} more", fmt::join(first, ", "), words.size() - kShown);
}

// Speeds behind the forecasts: measured and assumed ones.
std::string text_of_speeds(const plan::Plan& plan) {
  std::vector<std::string> measured;
  std::set<std::string> assumed;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const plan::ComputeSpeed speed = plan::compute_speed(plan, i, 1);
    const std::string words = fmt::format("{:.3g} Gflop/s a thread", speed.flops_per_second / 1e9);
    if (speed.measured) measured.push_back(fmt::format("{} on {}", words, plan.hosts[i].name));
    if (!speed.measured) assumed.insert(words);
  }
  std::set<std::pair<std::size_t, std::size_t>> seen;
  for (const plan::Plan::Link& link : plan.links) {
    const std::size_t from = plan.process(link.connects).host_index;
    const std::size_t to = plan.process(link.listens).host_index;
    if (!seen.insert({from, to}).second) continue;
    const plan::PathSpeed path = plan::path_speed(plan, from, to);
    const std::string words = text_of_rate(path.bytes_per_second);
    if (!path.measured) assumed.insert(words + " a link");
    if (path.measured) {
      measured.push_back(fmt::format("{} and {:.3g} ms from {} to {}", words, path.seconds * 1e3,
                                     plan.hosts[from].name, plan.hosts[to].name));
    }
  }
  std::string rest = fmt::format("{}", fmt::join(assumed, " and "));
  if (measured.empty()) return rest;
  return fmt::format("measured {}{}{}", some_of(measured), rest.empty() ? "" : "; assumed ", rest);
}

// "0.223 s", "12 min", "4.1 h", "26 days".
std::string text_of_seconds(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  if (seconds < 10 * kMinute) return fmt::format("{:.3g} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  if (seconds < 3 * kDay) return fmt::format("{:.1f} h", seconds / kHour);
  return fmt::format("{:.0f} days", seconds / kDay);
}

double seconds_of_all_steps(const plan::Plan& plan) {
  const std::int64_t first = std::min(plan.steps, plan.epoch_steps);
  return static_cast<double>(first) * plan.first_epoch_step_seconds +
         static_cast<double>(plan.steps - first) * plan.step_seconds;
}

// hosts.simulate: "100 Mbit/s, 20 ms one way"; empty: links are as they are.
std::string text_of_simulation(const net::PathConditions& path) {
  if (!path.any()) return "";
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  std::vector<std::string> words;
  if (path.bits_per_second > 0) {
    words.push_back(text_of_rate(static_cast<double>(path.bits_per_second) / 8));
  }
  words.push_back(fmt::format("{:.3g} ms one way", seconds(path.delay) * 1e3));
  if (path.jitter.count() > 0) {
    words.push_back(fmt::format("up to {:.3g} ms more", seconds(path.jitter) * 1e3));
  }
  if (path.loss > 0) words.push_back(fmt::format("{:.3g} % of packets lost", path.loss * 100));
  if (path.cut_every.count() > 0) {
    words.push_back(fmt::format("cut every {:.3g} s for {:.3g} s", seconds(path.cut_every),
                                seconds(path.cut_for)));
  }
  return fmt::format("\nevery link is simulated, in each direction: {}\n", fmt::join(words, ", "));
}

std::string step_forecast(const plan::Plan& plan) {
  std::string text = fmt::format("\nforecast at {}: {} a step", text_of_speeds(plan),
                                 text_of_seconds(plan.step_seconds));
  if (std::ranges::any_of(plan.links, &plan::Plan::Link::has_cache)) {
    text += fmt::format(", {} in the first epoch ({} steps)",
                        text_of_seconds(plan.first_epoch_step_seconds), plan.epoch_steps);
  }
  if (const double consensus = consensus_seconds(plan); consensus > 0) {
    text += fmt::format(", and {:.3g} s for the consensus of replicas", consensus);
  }
  return text + fmt::format("; {} in all\n", text_of_seconds(seconds_of_all_steps(plan)));
}

// " (1.2 M trained, base nf4)"
std::string text_of_trained(const models::ModelDescription& model, recipe::Quantization base) {
  const std::int64_t trained = model.trained_parameters();
  if (trained == model.parameters()) return "";
  return fmt::format(
      " ({} trained{})", human_count(trained),
      base == recipe::Quantization::none ? "" : fmt::format(", base {}", recipe::name_of(base)));
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
      recipe.data.row, plan.micro_batches, *recipe.train.micro_batch, recipe.pipeline.schedule,
      text_of_chunks(plan), plan.depth, text_of_forward(recipe.codec),
      text_of_backward(recipe.codec), text_of_sync(plan), plan.train.rows);
  if (plan.eval) text += fmt::format(", {} evaluation rows", plan.eval->rows);
  return text + "\n" + process_table(plan, model) + link_table(plan) + cache_table(plan) +
         sync_offer_table(plan) + text_of_simulation(recipe.hosts.simulate) + step_forecast(plan);
}

}  // namespace strait::planner
