#include "launcher/planner/step_forecast.h"

#include <queue>

#include "framework/codec/codecs.h"
#include "launcher/planner/host_lines.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_frozen_rows.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/planner/planned_slices.h"
#include "schedules/choose_depth.h"
#include "schedules/schedule.h"
#include "stages/muon.h"

namespace strait::planner {
namespace {

// Replicas get unequal rows for a gain above this: forecasts are not more precise.
constexpr double kClearlyUnequal = 1.05;

schedules::PipelineShape shape_of_costs(const StepCosts& costs, std::int64_t depth) {
  return {static_cast<int>(costs.stages), static_cast<int>(costs.micro_batches),
          static_cast<int>(depth), static_cast<int>(std::ssize(costs.chunks) / costs.stages),
          static_cast<int>(costs.slices)};
}

}  // namespace

models::ModelDescription trained_model(const plan::Plan& plan) {
  models::ModelDescription model =
      models::describe(planned_model(plan), {plan.recipe.data.row, sizeof(float)});
  recompute_layers(plan.recipe.model, model);
  return model;
}

schedules::ChunkCost chunk_cost(const models::ModelDescription& model,
                                const models::LayerRange& layers, std::int64_t tokens,
                                const plan::ComputeSpeed& speed) {
  schedules::ChunkCost cost;
  for (int i = layers.first; i <= layers.last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    const double forward =
        layer.forward_flops_per_token * static_cast<double>(tokens) / speed.flops_per_second;
    // The ratio was measured on layers with trained weights, whose factor is 2.
    const double backward = speed.backward * layer.backward_factor / 2 * forward;
    cost.forward_seconds += forward + (layer.backward_in_forward ? backward : 0);
    if (layer.backward_in_forward) continue;
    cost.backward_seconds += backward;
    const double weights = speed.backward / 2 * layer.weight_gradient_flops_per_token *
                           static_cast<double>(tokens) / speed.flops_per_second;
    cost.weight_gradient_seconds += std::min(weights, backward);
  }
  return cost;
}

UpdatePeers update_peers(std::span<const std::size_t> hosts, std::int64_t stages,
                         std::size_t process) {
  UpdatePeers peers{.all = 0, .of_stage = 0};
  const auto count = static_cast<std::size_t>(stages);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i] != hosts[process]) continue;
    ++peers.all;
    peers.of_stage += i % count == process % count ? 1 : 0;
  }
  return peers;
}

UpdatePeers update_peers(const plan::Plan& plan, net::ProcessName process) {
  const std::size_t host = plan.process(process).host_index;
  UpdatePeers peers{.all = 0, .of_stage = 0};
  for (const plan::Plan::Process& one : plan.processes) {
    if (one.host_index != host) continue;
    ++peers.all;
    peers.of_stage += one.name.stage == process.stage ? 1 : 0;
  }
  return peers;
}

double update_seconds(const plan::Plan& plan, std::size_t host,
                      const models::ModelDescription& model, const models::LayerRange& layers,
                      const UpdatePeers& peers) {
  std::int64_t trained = 0;
  for (int i = layers.first; i <= layers.last; ++i) {
    trained += model.layers[static_cast<std::size_t>(i)].trained;
  }
  // The norm reads the gradient, clipping reads and writes it, and the next step sets it to zero.
  constexpr double kGradientBytes = 4 * (1 + 2 + 1);
  // The update reads gradient, value and both moments, and writes value and moments.
  constexpr double kUpdateBytes = 4 * 7;
  const auto count = static_cast<double>(trained);
  const double rate = 2 * plan::copy_speed(plan, host);
  const double gradient = count * kGradientBytes / rate;
  const recipe::Recipe::Train& train = plan.recipe.train;
  const bool on_gpu = plan::computes_on_gpus(plan, host);
  const double own = plan.recipe.sync.share_state ? 1 / static_cast<double>(peers.of_stage) : 1;
  const double disk = own * static_cast<double>(peers.all) *
                      disk_seconds(trained * state_bytes(plan.recipe, on_gpu).on_disk);
  if (train.offload != recipe::Offload::none && on_gpu) {
    const OffloadSeconds offload = offload_seconds(plan.recipe, trained);
    return gradient + std::max(offload.update + disk, offload.transfer);
  }
  double seconds = gradient + own * count * kUpdateBytes / rate + disk;
  if (train.optimizer != recipe::OptimizerKind::muon) return seconds;
  const plan::ComputeSpeed speed = plan::compute_speed(plan, host, threads_of(plan.recipe, 1));
  for (const models::TensorShape& matrix : stages::muon_matrices(model, layers)) {
    seconds += own * stages::muon_flops(matrix.shape) / speed.flops_per_second;
  }
  return seconds;
}

std::int64_t muon_parameters(const plan::Plan& plan, const models::ModelDescription& model,
                             const std::vector<models::LayerRange>& chunks) {
  std::int64_t parameters = 0;
  if (plan.recipe.train.optimizer != recipe::OptimizerKind::muon) return parameters;
  for (const models::LayerRange& layers : chunks) {
    for (const models::TensorShape& matrix : stages::muon_matrices(model, layers)) {
      parameters += matrix.elements();
    }
  }
  return parameters;
}

OffloadSeconds offload_seconds(const recipe::Recipe& recipe, std::int64_t trained) {
  const auto count = static_cast<double>(trained);
  const StateBytes bytes = state_bytes(recipe, true);
  constexpr double kGradient = 4;
  const auto value = static_cast<double>(value_bytes(recipe.model));
  // Master and moments are read and written; a value is rounded, and copied to pinned memory.
  const double passed = kGradient + 2 * static_cast<double>(bytes.saved) + 3 * value;
  return {count * passed / plan::kAssumedMemoryBytesPerSecond,
          count * (kGradient + value) / plan::kAssumedPcieBytesPerSecond};
}

// None of it stays in memory: an update passes all of it before it comes back to the first part.
double disk_seconds(std::int64_t disk_bytes) {
  return 2 * static_cast<double>(disk_bytes) / plan::kAssumedDiskBytesPerSecond;
}

schedules::LinkCost link_cost(double forward_bytes, double backward_bytes,
                              const plan::PathSpeed& forward, const plan::PathSpeed& backward) {
  schedules::LinkCost link;
  link.forward_bytes = forward_bytes;
  link.backward_bytes = backward_bytes;
  link.forward_bytes_per_second = forward.bytes_per_second;
  link.backward_bytes_per_second = backward.bytes_per_second;
  link.forward_uplink_bytes_per_second = forward.uplink;
  link.backward_uplink_bytes_per_second = backward.uplink;
  link.latency_seconds = (forward.seconds + backward.seconds) / 2;
  link.transport_seconds_per_byte =
      1 / (forward.in_memory ? plan::kMemoryLinkBytesPerSecond : plan::kLoopbackBytesPerSecond);
  return link;
}

double coding_seconds(const codec::CodecSettings& settings, codec::Direction direction,
                      double values) {
  const codec::CodecOffer& offer = codec::codecs().named(settings.name(direction));
  return values * sizeof(float) / offer.coded_bytes_per_second;
}

void add_coding(const codec::CodecSettings& settings, double values, schedules::LinkCost& link) {
  const double forward = coding_seconds(settings, codec::Direction::forward, values);
  const double backward = coding_seconds(settings, codec::Direction::backward, values);
  if (link.forward_bytes + link.backward_bytes == 0) {
    link.latency_seconds = 0;  // nothing crosses, so nothing waits for it
    return;
  }
  link.forward_coding_seconds = link.forward_bytes > 0 ? forward : 0;
  link.backward_coding_seconds = link.backward_bytes > 0 ? backward : 0;
}

double tie_seconds(double gradients, double values, std::int64_t micro_batches,
                   const plan::PathSpeed& down, const plan::PathSpeed& up) {
  const double share = 1 / static_cast<double>(micro_batches);
  return gradients * share / down.bytes_per_second + down.seconds +
         values * share / up.bytes_per_second + up.seconds;
}

std::int64_t best_depth(const StepCosts& costs, std::int64_t deepest) {
  const schedules::PipelineShape shape = shape_of_costs(costs, 0);
  const StepCosts slice = costs_of_a_slice(costs);
  return schedules::choose_depth(schedules::schedule_named(costs.schedule), shape, slice.chunks,
                                 slice.links, shape.chunks * shape.micro_batches,
                                 static_cast<int>(deepest), costs.machines);
}

std::int64_t all_micro_batches(const plan::Plan& plan) {
  std::int64_t all = 0;
  for (std::uint32_t replica = 0; replica < plan.recipe.pipeline.replicas; ++replica) {
    all += plan.micro_batches_of(replica);
  }
  return all;
}

std::vector<std::int64_t> best_micro_batches(std::vector<StepCosts> equal, std::int64_t depth) {
  const std::int64_t even = equal.front().micro_batches;
  const auto seconds = [&](StepCosts& costs, std::int64_t micro_batches) {
    costs.micro_batches = micro_batches;
    return step_seconds(costs, depth);
  };
  // A replica, with the seconds of a step by which it would end with one micro-batch more.
  struct Replica {
    double next;
    double each;
    std::size_t number;
    bool operator>(const Replica& other) const {
      return std::tie(next, number) > std::tie(other.next, other.number);
    }
  };
  std::vector<double> with_even;
  with_even.reserve(equal.size());
  for (StepCosts& costs : equal) with_even.push_back(seconds(costs, even));
  std::vector<std::int64_t> counts(equal.size(), even);
  const double slowest = std::ranges::max(with_even);
  if (slowest <= kClearlyUnequal * std::ranges::min(with_even)) return counts;
  std::priority_queue<Replica, std::vector<Replica>, std::greater<>> replicas;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    // More micro-batches take evenly longer.
    const double each = (seconds(equal[i], 2 * even) - with_even[i]) / static_cast<double>(even);
    replicas.push({with_even[i] - static_cast<double>(even - 2) * each, each, i});
  }
  std::vector<std::int64_t> chosen(equal.size(), 1);
  for (std::int64_t left = (even - 1) * std::ssize(equal); left > 0; --left) {
    Replica first = replicas.top();
    replicas.pop();
    ++chosen[first.number];
    first.next += first.each;
    replicas.push(first);
  }
  double after = 0;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    after = std::max(after, seconds(equal[i], chosen[i]));
  }
  return kClearlyUnequal * after < slowest ? chosen : counts;
}

std::int64_t best_micro_batch(std::int64_t rows,
                              const std::function<std::optional<double>(std::int64_t)>& forecast) {
  constexpr double kTolerance = 1.05;  // forecasts are not more precise than this
  std::map<std::int64_t, double> seconds;
  for (std::int64_t candidate = 1; candidate <= rows; ++candidate) {
    if (rows % candidate != 0) continue;
    if (const std::optional<double> one = forecast(candidate)) seconds[candidate] = *one;
  }
  const auto shortest = std::ranges::min_element(seconds, {}, [](auto& one) { return one.second; });
  const auto chosen = std::ranges::find_if(
      seconds, [&](auto& one) { return one.second <= kTolerance * shortest->second; });
  return chosen == seconds.end() ? 1 : chosen->first;
}

schedules::Forecast simulated_step(const StepCosts& costs, std::int64_t depth) {
  const auto lists = schedules::action_lists(schedules::schedule_named(costs.schedule),
                                             shape_of_costs(costs, depth));
  const StepCosts slice = costs_of_a_slice(costs);
  return schedules::simulate(lists, slice.chunks, slice.links, slice.machines);
}

double step_seconds(const StepCosts& costs, std::int64_t depth) {
  return simulated_step(costs, depth).seconds + costs.tie_seconds;
}

double forward_seconds(StepCosts costs, double bytes, std::int64_t depth) {
  // No forward waits for a backward.
  if (std::ssize(costs.chunks) == costs.stages) costs.schedule = "gpipe";
  for (schedules::ChunkCost& chunk : costs.chunks)
    chunk = {.forward_seconds = chunk.forward_seconds};
  for (schedules::LinkCost& link : costs.links) {
    link.forward_bytes = bytes;
    link.backward_bytes = link.backward_coding_seconds = 0;
  }
  return simulated_step(costs, depth).seconds;
}

double forecast_step(const plan::Plan& plan, const plan::PathSpeeds& speed) {
  double slowest = HostLines(plan, speed).busiest_seconds();
  for (const StepCosts& costs : costs_of_replicas(plan, speed)) {
    slowest = std::max(slowest, step_seconds(costs, plan.depth));
  }
  return slowest;
}

std::map<net::ProcessName, double> compute_seconds(const plan::Plan& plan, bool first_epoch) {
  const std::vector<StepCosts> replicas =
      costs_of_replicas(plan, plan::direct_speeds(plan), first_epoch);
  std::map<net::ProcessName, double> seconds;
  for (std::uint32_t replica = 0; replica < replicas.size(); ++replica) {
    for (const schedules::ActionSpan& span : simulated_step(replicas[replica], plan.depth).spans) {
      seconds[{static_cast<std::uint32_t>(span.stage), replica}] += span.end - span.start;
    }
  }
  return seconds;
}

std::map<net::ProcessName, double> steady_compute_seconds(const plan::Plan& plan) {
  std::map<net::ProcessName, double> seconds = compute_seconds(plan);
  const models::ModelDescription model = trained_model(plan);
  const codec::CacheLimits frozen = frozen_rows(plan, model);
  for (const plan::Plan::Process& process : plan.processes) {
    for (const models::LayerRange& chunk : process.chunks) {
      const models::LayerRange later = later_layers(chunk, model, frozen);
      if (later.first != chunk.first || later.last != chunk.last) seconds.at(process.name) = 0;
    }
  }
  return seconds;
}

StepWork step_work(const plan::Plan& plan, net::ProcessName name, std::int64_t accelerators) {
  const plan::Plan::Process& own = plan.process(name);
  const models::ModelDescription model =
      models::describe(planned_model(plan), {.row_length = plan.recipe.data.row});
  StepWork work;
  const codec::CacheLimits frozen = frozen_rows(plan, model);
  for (const models::LayerRange& chunk : own.chunks) {
    const models::LayerRange layers = later_layers(chunk, model, frozen);
    for (int i = layers.first; i <= layers.last; ++i) {
      const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
      work.flops += layer.forward_flops_per_token * (1 + layer.backward_factor);
    }
  }
  work.flops *= static_cast<double>(plan.micro_batches_of(name.replica) * plan.micro_batch_rows()) *
                static_cast<double>(plan.recipe.data.row);
  const auto device_of = [&](const plan::Plan::Process& process) {
    const std::optional<std::size_t> known = plan.gpu_of(process);
    if (known || accelerators == 0) return known;
    return std::optional(static_cast<std::size_t>(plan.index_on_host(process) % accelerators));
  };
  const auto sharers = std::ranges::count_if(plan.processes, [&](const plan::Plan::Process& other) {
    return other.host_index == own.host_index && device_of(other) == device_of(own);
  });
  work.devices = 1 / static_cast<double>(sharers);
  work.device = plan.hosts.at(own.host_index).device;
  work.dtype = plan.recipe.model.dtype;
  return work;
}

}  // namespace strait::planner
