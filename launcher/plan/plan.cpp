#include "launcher/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "framework/store/file_hash.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/recipe/recipe_writer.h"
#include "launcher/base/user_error.h"
#include "schedules/forward_only.h"
#include "schedules/schedule.h"

namespace strait::plan {
namespace {

using nlohmann::json;

json name_to_json(net::ProcessName name) { return name.text(); }

net::ProcessName name_from_json(const json& text) {
  const auto name = net::ProcessName::parse(text.get<std::string>());
  if (!name) throw base::UserError(base::ExitCode::mismatch, "a plan names a process " + text.dump());
  return *name;
}

json data_to_json(const Plan::Data& data) {
  return {{"file", data.file}, {"hash", data.hash}, {"rows", data.rows}};
}

Plan::Data data_from_json(const json& from) {
  return {from.at("file"), from.at("hash"), from.at("rows")};
}

json host_to_json(const Plan::Host& host) {
  return {{"name", host.name}, {"cores", host.cores}, {"memory", host.memory}};
}

Plan::Host host_from_json(const json& from) {
  return {from.at("name"), from.at("cores"), from.at("memory")};
}

json process_to_json(const Plan::Process& process) {
  json chunks = json::array();
  for (const models::LayerRange& layers : process.chunks) {
    chunks.push_back({layers.first, layers.last});
  }
  return {{"name", name_to_json(process.name)}, {"host", process.host},
          {"host_index", process.host_index},   {"chunks", chunks},
          {"threads", process.threads},         {"parameters", process.parameters},
          {"state_bytes", process.state_bytes}, {"activation_bytes", process.activation_bytes},
          {"cache_bytes", process.cache_bytes}, {"in_flight", process.in_flight}};
}

Plan::Process process_from_json(const json& from) {
  Plan::Process process;
  process.name = name_from_json(from.at("name"));
  process.host = from.at("host");
  process.host_index = from.at("host_index");
  for (const json& layers : from.at("chunks")) {
    process.chunks.push_back({layers.at(0), layers.at(1)});
  }
  if (process.chunks.empty()) {
    throw base::UserError(base::ExitCode::mismatch, "a plan gives no layers to " + process.name.text());
  }
  process.threads = from.at("threads");
  process.parameters = from.at("parameters");
  process.state_bytes = from.at("state_bytes");
  process.activation_bytes = from.at("activation_bytes");
  process.cache_bytes = from.at("cache_bytes");
  process.in_flight = from.at("in_flight");
  return process;
}

constexpr std::array kUseWords = {"boundary", "tie", "replica", "vote"};  // by Plan::Use

Plan::Use use_from_json(const json& word) {
  const auto found = std::ranges::find(kUseWords, word.get<std::string>());
  if (found == kUseWords.end()) {
    throw base::UserError(base::ExitCode::mismatch, "a plan uses a link as " + word.dump());
  }
  return static_cast<Plan::Use>(found - kUseWords.begin());
}

json link_to_json(const Plan::Link& link) {
  return {{"name", link.name},
          {"use", kUseWords.at(static_cast<std::size_t>(link.use))},
          {"connects", name_to_json(link.connects)},
          {"listens", name_to_json(link.listens)},
          {"place", link.place},
          {"forward_bytes", link.forward_bytes},
          {"backward_bytes", link.backward_bytes},
          {"first_forward_bytes", link.first_forward_bytes},
          {"entry_bytes", link.entry_bytes},
          {"cache_bytes", link.cache_bytes},
          {"cache_disk_bytes", link.cache_disk_bytes},
          {"cached_rows", link.cached_rows}};
}

Plan::Link link_from_json(const json& from) {
  Plan::Link link;
  link.name = from.at("name");
  link.use = use_from_json(from.at("use"));
  link.connects = name_from_json(from.at("connects"));
  link.listens = name_from_json(from.at("listens"));
  link.place = from.at("place");
  link.forward_bytes = from.at("forward_bytes");
  link.backward_bytes = from.at("backward_bytes");
  link.first_forward_bytes = from.at("first_forward_bytes");
  link.entry_bytes = from.at("entry_bytes");
  link.cache_bytes = from.at("cache_bytes");
  link.cache_disk_bytes = from.at("cache_disk_bytes");
  link.cached_rows = from.at("cached_rows");
  return link;
}

json strength_to_json(const std::optional<sync::Strength>& strength) {
  if (!strength) return nullptr;
  return {{"random", strength->random}, {"top", strength->top}, {"bits", strength->bits}};
}

std::optional<sync::Strength> strength_from_json(const json& from) {
  if (from.is_null()) return std::nullopt;
  return sync::Strength{from.at("random"), from.at("top"), from.at("bits")};
}

json offer_to_json(const Plan::SyncOffer& offer) {
  return {{"method", offer.method},
          {"step_bytes", offer.step_bytes},
          {"round_bytes", offer.round_bytes},
          {"slot_bytes", offer.slot_bytes},
          {"age", offer.age},
          {"step_seconds", offer.step_seconds},
          {"slowdown", offer.slowdown},
          {"strength", strength_to_json(offer.strength)}};
}

Plan::SyncOffer offer_from_json(const json& from) {
  return {from.at("method"),      from.at("step_bytes"),
          from.at("round_bytes"), from.at("slot_bytes"),
          from.at("age"),         from.at("step_seconds"),
          from.at("slowdown"),    strength_from_json(from.at("strength"))};
}

json measured_host_to_json(const recipe::MeasuredHost& host) {
  return {{"name", host.name},
          {"flops_per_second", host.flops_per_second},
          {"backward", host.backward},
          {"threads", host.threads},
          {"memory_bytes_per_second", host.memory_bytes_per_second}};
}

recipe::MeasuredHost measured_host_from_json(const json& from) {
  return {from.at("name"), from.at("flops_per_second"), from.at("backward"), from.at("threads"),
          from.at("memory_bytes_per_second")};
}

json measured_link_to_json(const recipe::MeasuredLink& link) {
  return {{"from", link.from},
          {"to", link.to},
          {"bits_per_second", link.bits_per_second},
          {"flows_bits_per_second", link.flows_bits_per_second},
          {"seconds", link.seconds}};
}

recipe::MeasuredLink measured_link_from_json(const json& from) {
  return {from.at("from"), from.at("to"), from.at("bits_per_second"),
          from.at("flows_bits_per_second"), from.at("seconds")};
}

template <typename Value>
json all_to_json(const std::vector<Value>& values, json (*convert)(const Value&)) {
  json array = json::array();
  for (const Value& value : values) array.push_back(convert(value));
  return array;
}

// How many of an evaluation's micro-batches m have m % replicas == replica.
std::int64_t own_micro_batches(std::int64_t all, std::int64_t replicas, std::int64_t replica) {
  return (all + replicas - 1 - replica) / replicas;
}

}  // namespace

std::string Plan::SyncOffer::name() const {
  return strength ? fmt::format("{} {}", method, strength->text()) : method;
}

const Plan::Process& Plan::process(net::ProcessName name) const {
  for (const Process& candidate : processes) {
    if (candidate.name == name) return candidate;
  }
  throw base::UserError(base::ExitCode::mismatch, "the plan has no process " + name.text());
}

schedules::ActionList Plan::training_actions(net::ProcessName name) const {
  const schedules::PipelineShape shape{static_cast<int>(recipe.pipeline.stages),
                                       static_cast<int>(micro_batches), static_cast<int>(depth),
                                       static_cast<int>(chunks())};
  return schedules::schedule_named(recipe.pipeline.schedule)
      .list(shape, static_cast<StageIndex>(name.stage));
}

schedules::ActionList Plan::evaluation_actions(net::ProcessName name) const {
  return evaluation_actions(name, static_cast<std::size_t>(recipe.pipeline.replicas), name.replica);
}

schedules::ActionList Plan::evaluation_actions(net::ProcessName name, std::size_t replicas,
                                               std::size_t place) const {
  const std::int64_t own = own_micro_batches(
      eval_micro_batches, static_cast<std::int64_t>(replicas), static_cast<std::int64_t>(place));
  if (own == 0) return {};
  const schedules::PipelineShape shape{static_cast<int>(recipe.pipeline.stages),
                                       static_cast<int>(own), 0, static_cast<int>(chunks())};
  return schedules::forward_only(shape, static_cast<StageIndex>(name.stage));
}

std::string Plan::hash() const {
  Plan placeless = *this;
  placeless.train.file.clear();
  placeless.recipe.model.path.clear();
  if (placeless.eval) placeless.eval->file.clear();
  return store::hash_text(to_json(placeless).dump());
}

json to_json(const Plan& plan) {
  return {{"recipe", recipe::recipe_to_json(plan.recipe)},
          {"model_config", plan.model_config},
          {"model_hash", plan.model_hash},
          {"train", data_to_json(plan.train)},
          {"eval", plan.eval ? data_to_json(*plan.eval) : json()},
          {"steps", plan.steps},
          {"micro_batches", plan.micro_batches},
          {"eval_micro_batches", plan.eval_micro_batches},
          {"depth", plan.depth},
          {"epoch_steps", plan.epoch_steps},
          {"step_seconds", plan.step_seconds},
          {"first_epoch_step_seconds", plan.first_epoch_step_seconds},
          {"sync_method", plan.sync_method},
          {"sync_strength", strength_to_json(plan.sync_strength)},
          {"sync_offers", all_to_json(plan.sync_offers, offer_to_json)},
          {"hosts", all_to_json(plan.hosts, host_to_json)},
          {"measured_hosts", all_to_json(plan.speeds.hosts, measured_host_to_json)},
          {"measured_links", all_to_json(plan.speeds.links, measured_link_to_json)},
          {"processes", all_to_json(plan.processes, process_to_json)},
          {"links", all_to_json(plan.links, link_to_json)}};
}

Plan plan_from_json(const json& from) {
  try {
    Plan plan;
    plan.recipe = recipe::recipe_from_json(from.at("recipe"), "plan");
    plan.model_config = from.at("model_config");
    plan.model_hash = from.at("model_hash");
    plan.train = data_from_json(from.at("train"));
    if (!from.at("eval").is_null()) plan.eval = data_from_json(from.at("eval"));
    plan.steps = from.at("steps");
    plan.micro_batches = from.at("micro_batches");
    plan.eval_micro_batches = from.at("eval_micro_batches");
    plan.depth = from.at("depth");
    plan.epoch_steps = from.at("epoch_steps");
    plan.step_seconds = from.at("step_seconds");
    plan.first_epoch_step_seconds = from.at("first_epoch_step_seconds");
    plan.sync_method = from.at("sync_method");
    plan.sync_strength = strength_from_json(from.at("sync_strength"));
    for (const json& offer : from.at("sync_offers")) {
      plan.sync_offers.push_back(offer_from_json(offer));
    }
    for (const json& host : from.at("hosts")) plan.hosts.push_back(host_from_json(host));
    for (const json& host : from.at("measured_hosts")) {
      plan.speeds.hosts.push_back(measured_host_from_json(host));
    }
    for (const json& link : from.at("measured_links")) {
      plan.speeds.links.push_back(measured_link_from_json(link));
    }
    for (const json& process : from.at("processes")) {
      plan.processes.push_back(process_from_json(process));
    }
    for (const json& link : from.at("links")) plan.links.push_back(link_from_json(link));
    return plan;
  } catch (const json::exception& error) {
    throw base::UserError(base::ExitCode::mismatch,
                    fmt::format("this is not a plan of this build ({}); was it made by another "
                                "version of strait?",
                                error.what()));
  }
}

recipe::Recipe settled_recipe(const Plan& plan) {
  recipe::Recipe recipe = plan.recipe;
  if (recipe::sync_method_of(recipe) == recipe::kAutomaticSync) {
    recipe.sync.method = plan.sync_method;
    // Said of cocktail, whose strengths these are, and not of what was chosen instead.
    if (!plan.sync_strength) recipe.sync.random = recipe.sync.top = std::nullopt;
    if (!plan.sync_strength) recipe.sync.bits = std::nullopt;
  }
  if (plan.sync_strength) {
    recipe.sync.random = plan.sync_strength->random;
    recipe.sync.top = plan.sync_strength->top;
    recipe.sync.bits = plan.sync_strength->bits;
  }
  return recipe;
}

}  // namespace strait::plan
