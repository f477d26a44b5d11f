#include "launcher/planner/planned_activations.h"
#include "launcher/planner/planned_frozen_rows.h"
#include "launcher/planner/planned_slices.h"
#include "launcher/planner/step_forecast.h"

namespace strait::planner {

schedules::Machines machines_of(const plan::Plan& plan, std::span<const std::size_t> hosts,
                                std::span<const std::int64_t> threads, std::uint32_t replica) {
  // Of a host, or of one of its GPUs: all processes, and those of this replica.
  struct Sharers {
    double all = 0;
    double own = 0;
    std::size_t machine = 0;
  };
  using Place = std::pair<std::size_t, std::optional<std::size_t>>;  // host, and GPU
  const auto stages = static_cast<std::size_t>(plan.recipe.pipeline.stages);
  std::map<Place, Sharers> sharers;
  std::vector<std::size_t> on_host(plan.hosts.size());
  std::vector<Place> places;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto& gpus = plan.hosts.at(hosts[i]).gpus;
    const std::size_t index = on_host[hosts[i]]++;
    Place& place = places.emplace_back(hosts[i], std::nullopt);
    const double own = i / stages == replica ? 1 : 0;
    for (int at = 0; at < (gpus && !gpus->empty() ? 2 : 1); ++at) {
      if (at == 1) place.second = index % gpus->size();
      sharers[place].all += 1;
      sharers[place].own += own;
    }
  }
  schedules::Machines machines;
  for (auto& [place, shared] : sharers) {
    if (shared.own == 0) continue;
    const auto cores = static_cast<double>(place.second ? 1 : plan.hosts[place.first].cores);
    shared.machine = machines.cores.size();
    machines.cores.push_back(cores == 0 ? std::numeric_limits<double>::infinity()
                                        : cores * shared.own / shared.all);
  }
  for (std::size_t i = replica * stages; i < (replica + 1) * stages; ++i) {
    const auto cores = static_cast<double>(plan.hosts[hosts[i]].cores);
    const auto all = static_cast<double>(threads[i]);
    const double own = places[i].second ? 1 : cores == 0 ? all : std::min(all, cores);
    machines.stages.push_back(
        {sharers.at(places[i]).machine, own, sharers.at({hosts[i], std::nullopt}).machine});
  }
  return machines;
}

std::vector<StepCosts> costs_of_replicas(const plan::Plan& plan, const plan::PathSpeeds& speed,
                                         bool first_epoch) {
  const models::ModelDescription model = trained_model(plan);
  const codec::CacheLimits frozen = first_epoch ? codec::CacheLimits() : frozen_rows(plan, model);
  const std::int64_t tokens = plan.micro_batch_rows() * plan.recipe.data.row;
  const std::int64_t computed = tokens + slice_pass_tokens(plan);
  std::vector<StepCosts> replicas(static_cast<std::size_t>(plan.recipe.pipeline.replicas));
  const auto stages = static_cast<std::size_t>(plan.recipe.pipeline.stages);
  std::vector<std::size_t> hosts;
  std::vector<std::int64_t> threads;
  for (const plan::Plan::Process& process : plan.processes) {
    hosts.push_back(process.host_index);
    threads.push_back(process.threads);
    const plan::ComputeSpeed compute = plan::compute_speed(plan, process);
    StepCosts& costs = replicas.at(process.name.replica);
    costs.chunks.resize(stages * process.chunks.size());
    costs.links.resize(costs.chunks.size() - 1);  // nothing is sent inside a stage
    for (std::size_t c = 0; c < process.chunks.size(); ++c) {
      const models::LayerRange layers = later_layers(process.chunks[c], model, frozen);
      schedules::ChunkCost& cost = costs.chunks[c * stages + process.name.stage];
      cost = chunk_cost(model, layers, computed, compute);
      wait_for_offload(plan, model, layers, tokens, process.host_index, process.name.stage, cost);
      cost.update_seconds = update_seconds(plan, process.host_index, model, process.chunks[c],
                                           update_peers(plan, process.name));
    }
  }
  for (const plan::Plan::Link& link : plan.links) {
    const std::size_t upper = plan.process(link.connects).host_index;
    const std::size_t lower = plan.process(link.listens).host_index;
    const auto forward_bytes =
        static_cast<double>(first_epoch ? link.first_forward_bytes : link.forward_bytes);
    const auto backward_bytes = static_cast<double>(link.backward_bytes);
    const std::int64_t micro_batches = plan.micro_batches_of(link.connects.replica);
    StepCosts& costs = replicas.at(link.connects.replica);
    if (link.use == plan::Plan::Use::tie) {
      costs.tie_seconds = tie_seconds(forward_bytes, backward_bytes, micro_batches * plan.slices,
                                      speed(link, upper, lower), speed(link, lower, upper));
    }
    if (link.use != plan::Plan::Use::boundary) continue;
    schedules::LinkCost& cost = costs.links.at(static_cast<std::size_t>(link.position));
    cost = link_cost(forward_bytes / static_cast<double>(micro_batches),
                     backward_bytes / static_cast<double>(micro_batches), speed(link, upper, lower),
                     speed(link, lower, upper));
    add_coding(plan.recipe.codec, static_cast<double>(tokens * model.hidden), cost);
  }
  for (std::uint32_t replica = 0; replica < replicas.size(); ++replica) {
    StepCosts& costs = replicas[replica];
    costs.schedule = plan.recipe.pipeline.schedule;
    costs.micro_batches = plan.micro_batches_of(replica);
    costs.stages = plan.recipe.pipeline.stages;
    costs.slices = plan.slices;
    costs.machines = machines_of(plan, hosts, threads, replica);
  }
  return replicas;
}

}  // namespace strait::planner
