#include "launcher/stage/stage_settings.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "launcher/build_id.h"

namespace strait::launcher {
namespace {

at::ScalarType scalar_type(Dtype dtype) {
  return dtype == Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
}

at::ScalarType scalar_type(WireDtype dtype) {
  switch (dtype) {
    case WireDtype::bfloat16:
      return at::kBFloat16;
    case WireDtype::float16:
      return at::kHalf;
    case WireDtype::float32:
      break;
  }
  return at::kFloat;
}

stages::Decay decay(DecayKind kind) {
  switch (kind) {
    case DecayKind::linear:
      return stages::Decay::linear;
    case DecayKind::constant:
      return stages::Decay::constant;
    case DecayKind::cosine:
      break;
  }
  return stages::Decay::cosine;
}

}  // namespace

stages::StageOptions stage_options(const StageJob& job, store::Step first) {
  const Plan& plan = job.plan;
  const Recipe& recipe = plan.recipe;
  stages::StageOptions options;
  options.model = models::parse_config(plan.model_config, recipe.model.path + "/config.json");
  options.layers = plan.process(job.process).layers;
  options.dtype = scalar_type(recipe.model.dtype);
  options.seed = static_cast<std::uint64_t>(recipe.seed);
  options.recompute = recipe.model.recompute == Recompute::layer;
  options.clip = recipe.train.clip;
  options.wire = scalar_type(recipe.codec.wire_dtype);
  options.evaluation_wire = options.wire;
  options.adamw.beta1 = recipe.train.betas.first;
  options.adamw.beta2 = recipe.train.betas.second;
  options.adamw.weight_decay = recipe.train.weight_decay;
  options.batch.seed = options.seed;
  options.batch.replicas = recipe.pipeline.replicas;
  options.batch.replica = job.process.replica;
  options.batch.micro_batch_rows = *recipe.train.micro_batch;
  options.batch.micro_batches = plan.micro_batches;
  options.batch.shuffle = recipe.data.shuffle;
  options.loop.first = first;
  options.loop.last = static_cast<store::Step>(plan.steps);
  options.loop.evaluate = plan.eval.has_value();
  options.loop.evaluate_every = recipe.train.eval_every;
  options.loop.checkpoint_every = recipe.checkpoint.every;
  options.loop.learning_rate = {recipe.train.learning_rate, recipe.train.warmup, plan.steps,
                                decay(recipe.train.decay)};
  options.training = plan.training_actions(job.process);
  options.evaluation = plan.evaluation_actions(job.process);
  return options;
}

net::LinkOptions link_options(const StageJob& job, const Plan::Link& link) {
  const Recipe::Codec& codec = job.plan.recipe.codec;
  net::LinkOptions options;
  options.name = link.name;
  options.peer = link.listens == job.process ? link.connects : link.listens;
  options.peer_public_key = job.peer_keys.at(options.peer.text());
  options.terms = {
      {"build", build_id()},
      {"plan", job.plan.hash()},
      {"codec", fmt::format("{} {}, {} {}", name_of(codec.forward), name_of(codec.wire_dtype),
                            name_of(codec.backward), name_of(codec.wire_dtype))}};
  return options;
}

}  // namespace strait::launcher
