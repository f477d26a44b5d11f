#include "launcher/planner/run_forecast.h"

#include <nlohmann/json.hpp>

#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {
namespace {

// Before the first step, for all rows. With adapters it is part of the first epoch's steps.
double reference_seconds(const plan::Plan& plan) {
  if (plan.recipe.model.lora) return 0;
  return static_cast<double>(plan.epoch_steps) * plan.reference_seconds;
}

double first_epoch_seconds(const plan::Plan& plan) {
  return plan.first_epoch_step_seconds - (plan.recipe.model.lora ? plan.reference_seconds : 0);
}

double steps_seconds(const plan::Plan& plan, std::int64_t first) {
  return static_cast<double>(first) * plan.first_epoch_step_seconds +
         static_cast<double>(plan.steps - first) * plan.step_seconds +
         static_cast<double>(plan.steps) * sync_seconds(plan) + reference_seconds(plan);
}

// At the end, and before it as often as the recipe says.
std::int64_t evaluations_of(const plan::Plan& plan) {
  if (!plan.eval) return 0;
  const std::int64_t every = plan.recipe.train.eval_every;
  return every == 0 ? 1 : (plan.steps + every - 1) / every;
}

// All stages make theirs at the same time.
double longest_update(const plan::Plan& plan) {
  const models::ModelDescription model = trained_model(plan);
  double longest = 0;
  for (const plan::Plan::Process& process : plan.processes) {
    const UpdatePeers peers = update_peers(plan, process.name);
    double own = 0;
    for (const models::LayerRange& layers : process.chunks) {
      own += update_seconds(plan, process.host_index, model, layers, peers);
    }
    longest = std::max(longest, own);
  }
  return longest;
}

// A step without backwards and update, of as many micro-batches as an evaluation has for the
// replica that has most of it, compared with its part of a step.
double seconds_of_evaluation(const plan::Plan& plan) {
  double steps = 0;
  for (const plan::Plan::Process& process : plan.processes) {
    const auto own = static_cast<double>(plan.evaluation_actions(process.name).size()) /
                     static_cast<double>(process.chunks.size());
    steps = std::max(steps, own / static_cast<double>(plan.micro_batches_of(process.name.replica)));
  }
  const double passes = std::max(0.0, first_epoch_seconds(plan) - longest_update(plan));
  return passes / (1 + plan::kAssumedBackwardCost) * steps;
}

std::vector<std::int64_t> sent_bytes(const plan::Plan& plan, std::int64_t first) {
  std::vector<std::int64_t> sent(plan.hosts.size());
  for (const plan::Plan::Link& link : plan.links) {
    const std::size_t from = plan.process(link.connects).host_index;
    const std::size_t to = plan.process(link.listens).host_index;
    if (from == to) continue;
    sent[from] += first * link.first_forward_bytes + (plan.steps - first) * link.forward_bytes;
    sent[to] += plan.steps * link.backward_bytes;
  }
  return sent;
}

std::int64_t shipped_bytes(const plan::Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe;
  if (!recipe::stores_on_hosts(recipe.hosts.backend)) return 0;
  if (recipe.model.weights != recipe::Weights::load) return 0;
  std::int64_t parameters = 0;
  for (const plan::Plan::Process& process : plan.processes) {
    if (process.name.replica == 0) parameters += process.parameters;
  }
  return parameters * value_bytes(recipe.model);
}

// Those of checkpoint.every, and one at the end.
std::int64_t checkpoints_of(const plan::Plan& plan) {
  const std::int64_t every = plan.recipe.checkpoint.every;
  return every == 0 ? std::min<std::int64_t>(plan.steps, 1) : (plan.steps + every - 1) / every;
}

// Those that processes use, several perhaps the same one. Where a host's are not known, each
// process has its own.
std::size_t used_gpus(const plan::Plan& plan) {
  std::set<std::pair<std::size_t, std::size_t>> used;
  for (const plan::Plan::Process& process : plan.processes) {
    if (!plan::computes_on_gpus(plan, process.host_index)) continue;
    const auto own = static_cast<std::size_t>(plan.index_on_host(process));
    used.emplace(process.host_index, plan.gpu_of(process).value_or(own));
  }
  return used.size();
}

// Of the hosts that compute, by the hour.
void add_cost(const plan::Plan& plan, double seconds, RunForecast& run) {
  std::set<std::string> used;
  for (const plan::Plan::Process& process : plan.processes) used.insert(process.host);
  for (const recipe::RecipeHost& host : plan.recipe.hosts.list) {
    if (!used.contains(host.name)) continue;
    if (host.price) run.cost = run.cost.value_or(0) + *host.price * seconds / 3600;
    if (!host.price) run.without_price.push_back(host.name);
  }
  if (!run.cost) run.without_price.clear();
}

double shipping_rate(const plan::Plan& plan) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const std::optional<double> stated =
      hosts.ship_megabits ? hosts.ship_megabits : hosts.link_megabits;
  return stated ? *stated * 1e6 / 8 : plan::kAssumedLineBytesPerSecond;
}

}  // namespace

RunForecast forecast_run(const plan::Plan& plan) {
  const std::int64_t first = std::min(plan.steps, plan.epoch_steps);
  RunForecast run;
  run.steps_seconds = steps_seconds(plan, first);
  run.evaluations = evaluations_of(plan);
  if (run.evaluations > 0 && plan.micro_batches > 0) {
    run.evaluation_seconds = static_cast<double>(run.evaluations) * seconds_of_evaluation(plan);
  }
  run.sent_bytes = sent_bytes(plan, first);
  const double seconds = run.steps_seconds + run.evaluation_seconds;
  run.gpu_seconds = static_cast<double>(used_gpus(plan)) * seconds;
  run.checkpoints = checkpoints_of(plan);
  for (const plan::Plan::Process& process : plan.processes) {
    run.checkpoint_bytes += process.saved_bytes;
  }
  run.shipped_bytes = shipped_bytes(plan);
  run.shipping_seconds = static_cast<double>(run.shipped_bytes) / shipping_rate(plan);
  add_cost(plan, seconds + run.shipping_seconds, run);
  return run;
}

nlohmann::json to_json(const RunForecast& run, const plan::Plan& plan) {
  nlohmann::json sent;
  for (std::size_t i = 0; i < run.sent_bytes.size(); ++i) {
    sent[plan.hosts[i].name] = run.sent_bytes[i];
  }
  nlohmann::json json = {
      {"steps_seconds", run.steps_seconds},           {"evaluations", run.evaluations},
      {"evaluation_seconds", run.evaluation_seconds}, {"checkpoints", run.checkpoints},
      {"checkpoint_bytes", run.checkpoint_bytes},     {"sent_bytes", std::move(sent)},
      {"gpu_hours", run.gpu_seconds / 3600},          {"shipped_bytes", run.shipped_bytes},
      {"shipping_seconds", run.shipping_seconds}};
  if (run.cost) json["cost"] = *run.cost;
  if (!run.without_price.empty()) json["hosts_without_price"] = run.without_price;
  return json;
}

}  // namespace strait::planner
