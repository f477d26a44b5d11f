#include "launcher/worker/stage_settings.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/base/own_program.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_frozen_rows.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/speeds.h"

namespace strait::worker {
namespace {

at::ScalarType scalar_type(recipe::Dtype dtype) {
  return dtype == recipe::Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
}

stages::MomentType moment_type(recipe::Moments moments) {
  switch (moments) {
    case recipe::Moments::bfloat16:
      return stages::MomentType::bfloat16;
    case recipe::Moments::int8:
      return stages::MomentType::int8;
    case recipe::Moments::float32:
      break;
  }
  return stages::MomentType::float32;
}

stages::Decay decay(recipe::DecayKind kind) {
  switch (kind) {
    case recipe::DecayKind::linear:
      return stages::Decay::linear;
    case recipe::DecayKind::constant:
      return stages::Decay::constant;
    case recipe::DecayKind::inverse_sqrt:
      return stages::Decay::inverse_sqrt;
    case recipe::DecayKind::cosine:
      break;
  }
  return stages::Decay::cosine;
}

stages::PreferenceOptions preference(const recipe::PreferenceSettings& settings) {
  stages::PreferenceOptions options;
  switch (settings.loss) {
    case recipe::PreferenceKind::orpo:
      options.loss = stages::PreferenceLoss::orpo;
      break;
    case recipe::PreferenceKind::simpo:
      options.loss = stages::PreferenceLoss::simpo;
      break;
    case recipe::PreferenceKind::dpo:
      options.loss = stages::PreferenceLoss::dpo;
      break;
    case recipe::PreferenceKind::kto:
      options.loss = stages::PreferenceLoss::kto;
      break;
    case recipe::PreferenceKind::none:
      break;
  }
  // As the papers have it.
  options.beta = settings.beta.value_or(settings.loss == recipe::PreferenceKind::simpo ? 2.0 : 0.1);
  options.margin = settings.margin;
  options.desirable_weight = settings.desirable_weight;
  options.undesirable_weight = settings.undesirable_weight;
  return options;
}

stages::BoundaryOptions boundary_options(const plan::StageJob& job, const plan::Plan::Link& link) {
  stages::BoundaryOptions options;
  options.name = link.name.substr(link.name.find(' ') + 1);
  options.position = link.position;
  options.boundaries =
      std::ranges::count(job.plan.links, plan::Plan::Use::boundary, &plan::Plan::Link::use) /
      job.plan.recipe.pipeline.replicas;
  options.codec = job.plan.recipe.codec;
  options.cache = link.cache;
  options.cache_folder = job.run_directory;
  return options;
}

std::vector<stages::ChunkPlan> chunk_plans(const plan::StageJob& job) {
  std::vector<stages::ChunkPlan> chunks;
  for (const models::LayerRange& layers : job.plan.process(job.process).chunks) {
    chunks.emplace_back().layers = layers;
  }
  const std::int64_t stages = job.plan.recipe.pipeline.stages;
  for (const plan::Plan::Link& link : job.plan.links) {
    if (link.use != plan::Plan::Use::boundary) continue;
    if (link.listens == job.process) {
      chunks.at(static_cast<std::size_t>((link.position + 1) / stages)).upper =
          boundary_options(job, link);
    }
    if (link.connects == job.process) {
      chunks.at(static_cast<std::size_t>(link.position / stages)).lower =
          boundary_options(job, link);
    }
  }
  return chunks;
}

stages::GroupOptions group_options(const plan::StageJob& job, at::Device device) {
  using Use = stages::GroupOptions::Use;
  stages::GroupOptions options;
  if (!job.plan.process(job.process).group) return options;
  const bool uncertain = planner::group_is_uncertain(job.plan, job.process.stage);
  // A build for CPUs uses no GPU in any process of the stage, so they need not ask each other.
  if (uncertain && device.is_cpu() && !at::hasCUDA()) return options;
  options.groups = plan::groups_of(job.plan, job.process.stage);
  options.use = uncertain ? Use::automatic : Use::always;
  options.one_host = planner::group_shares_host(job.plan, job.process);
  options.place = fmt::format("{}, {}", job.plan.process(job.process).host, device.str());
  // The device of a plugin may be anything.
  if (!device.is_cuda()) options.nccl_library.clear();
  return options;
}

// Links of replicas yield unless a step waits for its rounds. Then the stage itself sends at most
// the gradient of its last micro-batch meanwhile, and a link that yields is slow to find the rate
// of a path.
bool yields_to_boundaries(const plan::StageJob& job, const models::ModelDescription& model) {
  const plan::Plan& plan = job.plan;
  const auto members = static_cast<std::size_t>(plan.recipe.pipeline.replicas);
  return !sync::step_waits_for_rounds(
      planner::sync_settings(plan::resolved_recipe(plan), plan.sync_method, plan.steps),
      stages::stage_layout(model, plan.process(job.process).chunks), members);
}

}  // namespace

stages::StageOptions stage_options(const plan::StageJob& job, store::Step first,
                                   at::Device device) {
  const plan::Plan& plan = job.plan;
  const recipe::Recipe& recipe = plan.recipe;
  stages::StageOptions options;
  options.model = planner::planned_model(plan);
  options.chunks = chunk_plans(job);
  options.dtype = scalar_type(recipe.model.dtype);
  options.device = device;
  options.seed = static_cast<std::uint64_t>(recipe.seed);
  options.recompute = recipe.model.recompute == recipe::Recompute::layer;
  if (recipe.model.recompute == recipe::Recompute::offload) {
    options.offload_from = stages::ActivationOffload::kSmallest;
  }
  options.clip = recipe.train.clip;
  options.noise = recipe.train.neftune;
  options.preference = preference(recipe.train.preference);
  options.training_rows = plan.train.rows;
  options.row_tokens = recipe.data.row;
  options.frozen_rows = planner::frozen_rows(plan, models::describe(options.model));
  options.folder = job.run_directory;
  options.evaluation_wire = codec::scalar_type(recipe.codec.wire_dtype);
  options.adamw.beta1 = recipe.train.betas.first;
  options.adamw.beta2 = recipe.train.betas.second;
  options.adamw.weight_decay = recipe.train.weight_decay;
  options.adamw.rates = recipe.train.rates;
  options.adamw.moments = moment_type(recipe.train.moments);
  options.adamw.offload = recipe.train.offload != recipe::Offload::none;
  if (recipe.train.offload == recipe::Offload::disk) {
    options.adamw.disk_file = std::filesystem::path(job.run_directory) / "optimizer";
  }
  options.muon = recipe.train.optimizer == recipe::OptimizerKind::muon;
  if (!plan.sync_method.empty()) {
    options.sync =
        planner::sync_settings(plan::resolved_recipe(plan), plan.sync_method, plan.steps);
    options.sync.rows = plan.replica_rows;
  }
  options.group = group_options(job, device);
  options.batch.seed = options.seed;
  options.batch.replicas = recipe.pipeline.replicas;
  options.batch.replica = job.process.replica;
  options.batch.micro_batch_rows = plan.micro_batch_rows();
  options.batch.micro_batches = plan.micro_batches;
  options.batch.slices = static_cast<int>(plan.slices);
  for (std::uint32_t replica = 0; replica < plan.replica_rows.size(); ++replica) {
    options.batch.micro_batches_by_replica.push_back(plan.micro_batches_of(replica));
  }
  options.batch.shuffle = recipe.data.shuffle;
  options.batch.preferences = options.preference.loss != stages::PreferenceLoss::none;
  options.loop.first = first;
  options.loop.last = static_cast<store::Step>(plan.steps);
  options.loop.evaluate = plan.eval.has_value();
  options.loop.reference = stages::has_reference(options.preference.loss);
  options.loop.reference_first = options.loop.reference && options.model.lora == nullptr;
  options.loop.evaluate_every = recipe.train.eval_every;
  options.loop.early_stop = trace::EarlyStop(recipe.train.stop_when, job.early_stop);
  options.loop.checkpoint_every = recipe.checkpoint.every;
  options.loop.memory_every = recipe.checkpoint.memory_every;
  options.loop.evaluation_shard = [&plan, name = job.process](std::size_t replicas,
                                                              std::size_t index) {
    return plan.evaluation_actions(name, replicas, index);
  };
  options.loop.learning_rate = learning_rate_options(plan);
  if (plan::saves_during_training(recipe)) {
    options.snapshots = {static_cast<std::uint64_t>(recipe.checkpoint.memory)};
  }
  options.training = plan.training_actions(job.process);
  options.evaluation = plan.evaluation_actions(job.process);
  return options;
}

stages::LearningRateOptions learning_rate_options(const plan::Plan& plan) {
  const recipe::Recipe::Train& train = plan.recipe.train;
  return {train.learning_rate, train.min_rate, train.warmup, plan.steps, decay(train.decay)};
}

net::LinkOptions link_options(const plan::StageJob& job, const plan::Plan::Link& link) {
  const nlohmann::json recipe = recipe::recipe_to_json(plan::resolved_recipe(job.plan));
  net::LinkOptions options;
  options.name = link.name;
  options.peer = link.listens == job.process ? link.connects : link.listens;
  options.peer_public_key = job.peer_keys.at(options.peer.text());
  options.shared_memory = plan::shares_memory(job.plan, link);
  // The plan's hash covers everything. The other terms let a mismatch name what differs.
  options.terms = {{"build", base::build_id()}};
  const models::ModelDescription model = models::describe(planner::planned_model(job.plan));
  if (link.use == plan::Plan::Use::replica && yields_to_boundaries(job, model)) {
    options.priority = net::Priority::background;
  }
  if (link.use == plan::Plan::Use::tie) {
    options.window_bytes += static_cast<std::uint64_t>(model.vocabulary * model.hidden) * 4;
  }
  if (link.use == plan::Plan::Use::replica || link.use == plan::Plan::Use::consensus) {
    const auto sync = recipe.find("sync");
    options.terms.emplace_back("sync", fmt::format("{} {}", job.plan.sync_method,
                                                   sync == recipe.end() ? "{}" : sync->dump()));
    options.terms.emplace_back("replicas", fmt::format("{}", job.plan.recipe.pipeline.replicas));
  } else {
    options.terms.emplace_back("codec", recipe.at("codec").dump());
    options.terms.emplace_back("codec generation", fmt::format("{}", job.codec_generation));
    options.terms.emplace_back(
        "cache", fmt::format("{} bytes in memory, {} on disk, {} a row", link.cache.memory_bytes,
                             link.cache.disk_bytes, link.cache.entry_bytes));
  }
  options.terms.emplace_back("plan", job.plan.hash());
  // Counts from the bind. Peers may take long to load weights; the coordinator's watchdog finds
  // those that are missing or stall.
  options.connect_limit = std::chrono::minutes(30);
  options.hold = std::chrono::seconds(job.plan.recipe.hosts.hold);
  return options;
}

}  // namespace strait::worker
