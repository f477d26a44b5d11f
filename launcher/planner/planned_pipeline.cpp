#include "launcher/planner/planned_pipeline.h"

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/planner/host_lines.h"
#include "launcher/planner/planned_activations.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_frozen_rows.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_slices.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/speeds.h"
#include "schedules/choose_depth.h"
#include "schedules/schedule.h"

namespace strait::planner {
namespace {

constexpr std::int64_t kSumBytes = 4;  // per parameter: its gradient

std::size_t stages_of(const plan::Plan& plan) {
  return static_cast<std::size_t>(plan.recipe.pipeline.stages);
}

// Numbers that several steps of planning need.
struct Sizes {
  std::int64_t micro_batch_tokens;
  std::int64_t pass_tokens;  // see PipelineQuestion
  std::int64_t threads;
  std::optional<TieBytes> tie;
  std::int64_t recomputed_bytes;   // of the layer that is recomputed
  codec::CacheLimits frozen = {};  // see frozen_rows()
};

// Costs of a replica's pipeline after the first epoch (cache hits) and in the first epoch.
struct ReplicaCosts {
  StepCosts known;
  StepCosts first_epoch;
};

// `all_hosts` of every process; `ranges` and `boundaries` by position in the pipeline.
ReplicaCosts replica_costs(const plan::Plan& plan, const models::ModelDescription& model,
                           const std::vector<models::LayerRange>& ranges, std::uint32_t replica,
                           std::span<const std::size_t> all_hosts,
                           const std::vector<PlannedBoundary>& boundaries, const Sizes& sizes) {
  const auto hosts = all_hosts.subspan(replica * stages_of(plan), stages_of(plan));
  ReplicaCosts costs;
  costs.known.schedule = plan.recipe.pipeline.schedule;
  costs.known.micro_batches = plan.micro_batches_of(replica);
  costs.known.stages = std::ssize(hosts);
  costs.known.slices = plan.slices;
  costs.known.machines = machines_of(
      plan, all_hosts, std::vector<std::int64_t>(all_hosts.size(), sizes.threads), replica);
  const std::int64_t pass_tokens = sizes.pass_tokens + slice_pass_tokens(plan);
  const auto chunk = [&](std::size_t i, const models::LayerRange& layers) {
    const std::size_t host = hosts[i % hosts.size()];
    const plan::ComputeSpeed speed = plan::compute_speed(plan, host, sizes.threads);
    schedules::ChunkCost cost =
        chunk_cost(model, layers, sizes.micro_batch_tokens + pass_tokens, speed);
    const std::size_t process = replica * hosts.size() + i % hosts.size();
    wait_for_offload(plan, model, layers, sizes.micro_batch_tokens, host, i % hosts.size(), cost);
    cost.update_seconds = update_seconds(plan, host, model, layers,
                                         update_peers(all_hosts, std::ssize(hosts), process));
    return cost;
  };
  costs.known.links.resize(ranges.size() - 1);  // nothing is sent within a stage
  costs.first_epoch = costs.known;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    costs.first_epoch.chunks.push_back(chunk(i, ranges[i]));
    costs.known.chunks.push_back(chunk(i, later_layers(ranges[i], model, sizes.frozen)));
  }
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    const std::size_t upper = hosts[i % hosts.size()];
    const std::size_t lower = hosts[(i + 1) % hosts.size()];
    const plan::PathSpeed down = plan::path_speed(plan, upper, lower);
    const plan::PathSpeed up = plan::path_speed(plan, lower, upper);
    const BoundaryBytes& bytes = boundaries[i].bytes;
    costs.known.links[i] = link_cost(boundaries[i].forward_bytes(), bytes.backward, down, up);
    costs.first_epoch.links[i] = link_cost(bytes.first_forward, bytes.backward, down, up);
    const auto values = static_cast<double>(sizes.micro_batch_tokens * model.hidden);
    add_coding(plan.recipe.codec, values, costs.known.links[i]);
    add_coding(plan.recipe.codec, values, costs.first_epoch.links[i]);
  }
  if (sizes.tie) {
    const std::size_t first = hosts.front();
    const std::size_t last = hosts.back();
    costs.known.tie_seconds =
        tie_seconds(sizes.tie->gradients, sizes.tie->values, costs.known.passes(),
                    plan::path_speed(plan, first, last), plan::path_speed(plan, last, first));
    costs.first_epoch.tie_seconds = costs.known.tie_seconds;
  }
  return costs;
}

std::vector<ReplicaCosts> costs_of(const plan::Plan& plan, const models::ModelDescription& model,
                                   const PlannedCut& cut,
                                   const std::vector<PlannedBoundary>& boundaries,
                                   const Sizes& sizes) {
  std::vector<ReplicaCosts> replicas;
  for (std::uint32_t replica = 0; replica < plan.recipe.pipeline.replicas; ++replica) {
    replicas.push_back(
        replica_costs(plan, model, cut.layers, replica, cut.hosts, boundaries, sizes));
  }
  return replicas;
}

// The rows of each replica of a step by speed.
std::vector<std::int64_t> best_rows(const plan::Plan& plan, const models::ModelDescription& model,
                                    const PlannedCut& cut,
                                    const std::vector<PlannedBoundary>& boundaries,
                                    const Sizes& sizes) {
  std::vector<StepCosts> replicas;
  for (ReplicaCosts& one : costs_of(plan, model, cut, boundaries, sizes)) {
    replicas.push_back(std::move(one.known));
  }
  std::vector<std::int64_t> rows =
      best_micro_batches(std::move(replicas), plan.recipe.pipeline.depth.value_or(0));
  for (std::int64_t& count : rows) count *= sizes.micro_batch_tokens / plan.recipe.data.row;
  return rows;
}

// Chooses the depth, at most `deepest`, for steps after the first epoch, because these are most
// steps of a run. All replicas have the same depth and wait for the slowest one.
void plan_steps(plan::Plan& plan, const models::ModelDescription& model, const PlannedCut& cut,
                const std::vector<PlannedBoundary>& boundaries, const Sizes& sizes,
                std::int64_t deepest) {
  const std::vector<ReplicaCosts> replicas = costs_of(plan, model, cut, boundaries, sizes);
  const auto plain = [](const ReplicaCosts& costs) { return step_seconds(costs.known, 0); };
  const auto slowest = std::ranges::max_element(replicas, {}, plain);
  plan.depth = plan.recipe.pipeline.depth.value_or(best_depth(slowest->known, deepest));
  plan.step_seconds = plan.first_epoch_step_seconds = plan.reference_seconds = 0;
  const double raw_bytes = static_cast<double>(sizes.micro_batch_tokens * model.hidden) *
                           static_cast<double>(codec::bytes_of(plan.recipe.codec.wire_dtype));
  for (const ReplicaCosts& costs : replicas) {
    plan.step_seconds = std::max(plan.step_seconds, step_seconds(costs.known, plan.depth));
    plan.first_epoch_step_seconds =
        std::max(plan.first_epoch_step_seconds, step_seconds(costs.first_epoch, plan.depth));
    if (!recipe::has_reference(plan.recipe.train.preference.loss)) continue;
    plan.reference_seconds =
        std::max(plan.reference_seconds, forward_seconds(costs.known, raw_bytes, plan.depth));
  }
  if (plan.recipe.model.lora) plan.first_epoch_step_seconds += plan.reference_seconds;
}

plan::Plan::Process plan_process(const plan::Plan& plan, const models::ModelDescription& model,
                                 const std::vector<models::LayerRange>& ranges,
                                 net::ProcessName name, std::size_t host, const Sizes& sizes) {
  plan::Plan::Process process;
  process.name = name;
  process.host_index = host;
  process.threads = sizes.threads;
  std::int64_t trained = 0;
  std::vector<schedules::PassBytes> held;  // of a micro-batch, by chunk
  std::int64_t working = 0;                // of the layer that needs most
  std::int64_t keys = 0;                   // of the chunk that needs most
  const std::int64_t pass_tokens = sizes.micro_batch_tokens / plan.slices;
  models::Quantized quantized;
  for (std::size_t at = name.stage; at < ranges.size(); at += stages_of(plan)) {
    process.chunks.push_back(ranges[at]);
    held.push_back(pass_bytes(plan, model, ranges[at], sizes.micro_batch_tokens));
    keys = std::max(keys, slice_key_bytes(plan, model, ranges[at]).working);
    for (int i = ranges[at].first; i <= ranges[at].last; ++i) {
      const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
      process.parameters += layer.parameters;
      trained += layer.trained;
      working = std::max(working, layer.working_bytes_per_token * pass_tokens);
      quantized.parameters += layer.quantized.parameters;
      quantized.bytes += layer.quantized.bytes;
      quantized.largest_matrix = std::max(quantized.largest_matrix, layer.quantized.largest_matrix);
    }
  }
  // The stage of the LM head owns a tied table. If the table is frozen, both stages have a copy.
  const bool has_embedding = process.chunks.front().first == 0;
  const bool has_head = process.chunks.back().last + 1 == std::ssize(model.layers);
  if (model.tied && has_embedding != has_head) {
    const std::int64_t moved = (has_head ? 1 : -1) * model.tied_parameters;
    if (has_head || model.tied_trained) process.parameters += moved;
    if (model.tied_trained) trained += moved;
  }
  // Embedding and head sum their gradients of the table separately until the step ends.
  const bool sums_twice = model.tied && model.tied_trained && has_embedding && has_head;
  const schedules::PipelineShape shape =
      shape_of(plan.recipe, plan.micro_batches_of(name.replica), plan.depth);
  const auto stage = static_cast<StageIndex>(name.stage);
  const schedules::Schedule& schedule = schedules::schedule_named(plan.recipe.pipeline.schedule);
  process.in_flight = schedule.most_in_flight(shape, stage);
  if (has_head) working = std::max(working, model.logits_bytes(pass_tokens));
  working += keys * sizes.micro_batch_tokens;
  plan_activations(plan, model, schedule.list(shape, stage), held, sizes.micro_batch_tokens,
                   process);
  process.activation_bytes += working;
  const StateBytes bytes = state_bytes(plan.recipe, plan::computes_on_gpus(plan, host));
  // Muon has no second moments. What it computes with fits where activations were.
  const std::int64_t spared = muon_parameters(plan, model, process.chunks) * bytes.moments / 2;
  process.saved_bytes = trained * bytes.saved - spared;
  process.offloaded_bytes = trained * bytes.offloaded;
  process.disk_bytes = trained * bytes.on_disk;
  // A quantised matrix is dequantised for each use, one matrix at a time.
  process.state_bytes = trained * bytes.trained - spared + quantized.bytes +
                        (process.parameters - trained - quantized.parameters) * bytes.frozen +
                        quantized.largest_matrix * value_bytes(plan.recipe.model);
  if (sums_twice) process.state_bytes += kSumBytes * model.tied_parameters;
  return process;
}

void plan_processes(plan::Plan& plan, const models::ModelDescription& model, const PlannedCut& cut,
                    const std::vector<PlannedBoundary>& boundaries, const Sizes& sizes) {
  const std::vector<recipe::RecipeHost> hosts = plan::hosts_of(plan.recipe);
  plan.processes.clear();
  for (std::uint32_t replica = 0; replica < plan.recipe.pipeline.replicas; ++replica) {
    for (std::uint32_t stage = 0; stage < plan.recipe.pipeline.stages; ++stage) {
      const std::size_t host = cut.hosts.at(plan.processes.size());
      plan::Plan::Process process =
          plan_process(plan, model, cut.layers, {stage, replica}, host, sizes);
      process.activation_bytes += sizes.recomputed_bytes / plan.slices;
      process.activation_bytes += frozen_row_bytes(process.chunks, model, sizes.frozen);
      process.host = hosts[host].name;
      if (fills_caches(plan)) {
        process.cache_bytes = cache_bytes_of(boundaries, stage, stages_of(plan));
      }
      plan.processes.push_back(std::move(process));
    }
  }
}

// Chooses the depth. A deeper pipeline holds more, so it is the best one that fits into memory.
// Whether one does.
bool plan_depth(plan::Plan& plan, const models::ModelDescription& model, const PlannedCut& cut,
                const std::vector<PlannedBoundary>& boundaries, const Sizes& sizes) {
  for (std::int64_t deepest = schedules::kDeepestChosen;; deepest = plan.depth - 1) {
    plan_steps(plan, model, cut, boundaries, sizes, deepest);
    plan_processes(plan, model, cut, boundaries, sizes);
    const bool fits = fits_memory(plan);
    if (fits || plan.recipe.pipeline.depth || plan.depth == 0) return fits;
  }
}

// `pipeline.slices = "auto"`, each with its best depth. A run that resumes keeps its slices, on
// which its bits depend, where they fit. Frozen rows, which need whole rows, gain more.
// `boundaries` of whole rows.
void choose_slices(plan::Plan& plan, const PipelineQuestion& question, const PlannedCut& cut,
                   const std::vector<PlannedBoundary>& boundaries, const Sizes& sizes) {
  if (sizes.frozen.entry_bytes > 0) return;
  const auto seconds_with = [&](std::int64_t slices) -> std::optional<double> {
    plan.slices = slices;
    if (!plan_depth(plan, question.model, cut, boundaries, sizes)) return std::nullopt;
    return plan.step_seconds;
  };
  if (question.before != nullptr) {
    const std::int64_t before = question.before->slices;
    if (may_slice(plan.recipe, question.model, before) && seconds_with(before)) return;
  }
  const std::vector<std::int64_t> possible = possible_slices(plan.recipe, question.model);
  plan.slices = possible.size() == 1 ? 1 : best_slices(possible, seconds_with);
}

plan::Plan::Link boundary_link(const plan::Plan& plan, const PlannedBoundary& boundary,
                               std::size_t position, std::uint32_t replica) {
  const std::size_t stages = stages_of(plan);
  // "1.0"; with its chunk "1.0/1" if a stage has several.
  const auto end = [&](const net::ProcessName& name, std::size_t at) {
    return plan.chunks() == 1 ? name.text() : fmt::format("{}/{}", name.text(), at / stages);
  };
  const auto of_a_step = [&](double bytes) {
    return std::llround(bytes * static_cast<double>(plan.micro_batches_of(replica)));
  };
  plan::Plan::Link link;
  link.position = static_cast<std::int64_t>(position);
  link.connects = {static_cast<std::uint32_t>(position % stages), replica};
  link.listens = {static_cast<std::uint32_t>((position + 1) % stages), replica};
  link.name =
      fmt::format("boundary {}>{}", end(link.connects, position), end(link.listens, position + 1));
  link.forward_bytes = of_a_step(boundary.forward_bytes());
  link.backward_bytes = of_a_step(boundary.bytes.backward);
  link.first_forward_bytes = of_a_step(boundary.bytes.first_forward);
  link.cache = boundary.cache;
  return link;
}

void plan_boundary_links(plan::Plan& plan, const std::vector<PlannedBoundary>& boundaries) {
  for (std::uint32_t replica = 0; replica < plan.recipe.pipeline.replicas; ++replica) {
    for (std::size_t position = 0; position < boundaries.size(); ++position) {
      plan.links.push_back(boundary_link(plan, boundaries[position], position, replica));
    }
  }
}

// The largest number of processes on one host.
std::int64_t most_on_a_host(const std::vector<std::size_t>& hosts) {
  std::ptrdiff_t most = 1;
  for (const std::size_t host : hosts) most = std::max(most, std::ranges::count(hosts, host));
  return most;
}

}  // namespace

void plan_pipeline(plan::Plan& plan, const recipe::Recipe& resolved,
                   const PipelineQuestion& question) {
  const models::ModelDescription& model = question.model;
  const std::vector<recipe::RecipeHost> hosts = plan::hosts_of(resolved);
  const std::int64_t rows = *resolved.train.micro_batch;
  check_slices(resolved, model);
  plan.slices = resolved.pipeline.slices.value_or(1);
  set_rows(plan, resolved.pipeline.rows.value_or(std::vector<std::int64_t>()), rows);
  for (const std::int64_t own : plan.replica_rows) plan_schedule(resolved, own / rows);
  if (plan.eval) plan.eval_micro_batches = (plan.eval->rows + rows - 1) / rows;
  const PlannedCut cut =
      plan_cut(resolved, plan.speeds, model, plan.micro_batches, question.layer_times);
  const std::int64_t tokens = rows * resolved.data.row;
  Sizes sizes{tokens, question.pass_tokens, threads_of(resolved, most_on_a_host(cut.hosts)),
              tie_bytes(plan, model, question.train), question.recomputed_bytes_per_token * tokens};
  sizes.frozen = frozen_rows(plan, model, {cut.layers.front(), cut.hosts, sizes.threads});
  const bool samples_return = plan.steps > plan.epoch_steps;
  recipe::Recipe chosen = resolved;
  std::vector<PlannedBoundary> boundaries =
      plan_boundaries(chosen, model, cut.layers, *question.train.tokens, samples_return);
  if (leaves_rows_open(resolved)) {
    const auto kept = rows_kept_from(plan, resolved, cut.hosts, question.before);
    set_rows(plan, kept ? *kept : best_rows(plan, model, cut, boundaries, sizes), rows);
    for (const std::int64_t own : plan.replica_rows) plan_schedule(resolved, own / rows);
    chosen.pipeline.rows = plan.replica_rows;
    boundaries = plan_boundaries(chosen, model, cut.layers, *question.train.tokens, samples_return);
  }
  if (sizes.frozen.entry_bytes > 0) empty_frozen_boundaries(cut.layers, model, boundaries);
  if (!resolved.pipeline.slices) choose_slices(plan, question, cut, boundaries, sizes);
  if (plan.slices != chosen.pipeline.slices.value_or(1)) {
    chosen.pipeline.slices = plan.slices;
    boundaries = plan_boundaries(chosen, model, cut.layers, *question.train.tokens, samples_return);
  }
  plan_depth(plan, model, cut, boundaries, sizes);
  for (std::size_t i = 0; i < hosts.size(); ++i) plan::check_gpu_memory(plan, i);
  plan_boundary_links(plan, boundaries);
  if (sizes.tie) plan_tie_links(plan, *sizes.tie);
  wait_for_lines(plan);
  plan_sync(plan, model, question.before);
  check_simulated_link(plan);
  plan::check_ports(plan);
  plan::check_host_memory(plan);
}

}  // namespace strait::planner
