#include "launcher/planner/plan_maker.h"

#include <ATen/Context.h>

#include <unordered_set>

#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/planner/layer_times.h"
#include "launcher/planner/model_weights.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_data.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/speeds.h"
#include "stages/partition.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

// A changed run reads config.json again, but its checkpoints contain the model that it began with.
void check_same_model(const plan::Plan& before, const plan::Plan& now) {
  if (now.model_hash == before.model_hash) return;
  const fs::path run = fs::path("runs") / now.recipe.name;
  throw base::UserError(base::ExitCode::mismatch,
                        "{} has changed since the run began; put it back, or start another run "
                        "from the weights of this one: {} --set name={}-2 --set model.weights={}",
                        (fs::path(now.recipe.model.path) / "config.json").string(),
                        base::strait_command("run", run / "recipe.toml"), now.recipe.name,
                        base::shell_word(run.string()));
}

// Compares the names and shapes in the weight files with the model's, before anything starts.
void check_weights(const recipe::Recipe::Model& source, const models::ModelConfig& config) {
  if (source.weights != recipe::Weights::random) const ModelWeights weights(source, config);
  check_tied_projection(source, config);
}

// Hosts may have another build than this one, so each stage checks its own.
void check_device(const recipe::Recipe& recipe) {
  if (recipe.model.device != recipe::Device::cuda || at::globalContext().hasCUDART()) return;
  if (recipe.hosts.backend != recipe::BackendKind::local) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "model.device is \"cuda\", but this is a libtorch for CPUs; {} doctor says "
                        "how to install one with CUDA, or set model.device = \"cpu\"",
                        base::command_name());
}

// Takes the layers from the run that is resumed if "profile" chose them. Another measurement could
// choose others, which changes the bits of a run with quantised boundaries. False: there are none.
bool keep_profiled_cut(const plan::Plan* before, recipe::Recipe& resolved) {
  recipe::Recipe::Partition& partition = resolved.pipeline.partition;
  if (before == nullptr || before->recipe.pipeline.partition != partition) return false;
  if (before->recipe.pipeline.stages != resolved.pipeline.stages) return false;
  if (before->chunks() != chunks_of(resolved)) return false;
  const auto stages = static_cast<std::size_t>(resolved.pipeline.stages);
  const int head = before->processes.at(stages - 1).chunks.back().last;
  for (std::size_t c = 0; c < before->processes.front().chunks.size(); ++c) {
    for (std::size_t s = 0; s < stages; ++s) {
      const models::LayerRange& layers = before->processes.at(s).chunks[c];
      // Ranges count blocks: layer 0 is the embedding.
      partition.ranges.emplace_back(std::max(layers.first, 1) - 1,
                                    std::min(layers.last, head - 1) - 1);
    }
  }
  partition.kind = recipe::PartitionKind::ranges;
  return true;
}

ProfileQuestion profile_of(const recipe::Recipe& resolved) {
  ProfileQuestion question;
  question.rows = *resolved.train.micro_batch;
  question.row = resolved.data.row;
  const std::int64_t processes = resolved.hosts.backend == recipe::BackendKind::local
                                     ? resolved.pipeline.stages * resolved.pipeline.replicas
                                     : 1;
  question.threads = threads_of(resolved, processes);
  question.dtype = resolved.model.dtype == recipe::Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
  question.recompute = resolved.model.recompute == recipe::Recompute::layer;
  return question;
}

// A resumed run keeps its threads. The launcher reports what they cost on this host.
void plan_local_cores(plan::Plan& plan, const plan::Plan* before) {
  const bool chosen_now =
      before == nullptr || before->recipe.pipeline.threads != plan.recipe.pipeline.threads;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    plan.hosts[i].cores = base::usable_cores();
    if (chosen_now) plan::check_threads(plan, i);
  }
}

// Hosts of the plan with what is known of them.
void plan_hosts(plan::Plan& plan, const recipe::LinkTable* speeds, const plan::Plan* before) {
  const recipe::Recipe& recipe = plan.recipe;
  for (const recipe::RecipeHost& host : plan::hosts_of(recipe)) {
    plan.hosts.push_back({.name = host.name, .device = host.device});
  }
  if (speeds != nullptr) {
    plan.speeds = *speeds;
  } else if (!recipe.hosts.links.empty()) {
    plan.speeds = recipe::read_links(recipe.hosts.links);
  } else if (before != nullptr && recipe.hosts.backend == recipe::BackendKind::local) {
    plan.speeds.hosts = before->speeds.hosts;  // that of this machine, measured as the run began
  }
  const std::vector<KnownGpus> gpus = gpus_of_hosts(recipe, plan.speeds);
  for (std::size_t i = 0; i < gpus.size(); ++i) plan.hosts[i].gpus = gpus[i];
  if (recipe.hosts.backend != recipe::BackendKind::local) return;
  plan_local_cores(plan, before);
  if (const auto here = base::gpus_here(); !here.empty()) {
    plan.hosts.front().device = here.front().name;
  }
}

// A CPU has its activations in host memory in any case.
std::string idle_offload_note(const plan::Plan& plan) {
  const auto on_cpu = [&](const plan::Plan::Host& host) {
    return plan.recipe.model.device == recipe::Device::cpu || (host.gpus && host.gpus->empty());
  };
  if (plan.recipe.model.recompute != recipe::Recompute::offload ||
      !std::ranges::all_of(plan.hosts, on_cpu)) {
    return "";
  }
  return "model.recompute = \"offload\" saves nothing, because all stages compute on CPUs; "
         "\"layer\" saves memory there";
}

// A file of speeds with names that no host has would be ignored silently.
std::string unused_speeds_note(const plan::Plan& plan) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  if (hosts.links.empty() || !recipe::stores_on_hosts(hosts.backend)) return "";
  std::unordered_set<std::string_view> names;
  for (const recipe::MeasuredHost& host : plan.speeds.hosts) names.insert(host.name);
  for (const recipe::MeasuredLink& link : plan.speeds.links) names.insert({link.from, link.to});
  std::string_view missing;
  for (const recipe::RecipeHost& host : hosts.list) {
    if (names.erase(host.name) == 0 && missing.empty()) missing = host.name;
  }
  for (const recipe::RecipeHost& host : hosts.spare) names.erase(host.name);
  if (missing.empty() || names.empty()) return "";
  return fmt::format("{} says nothing of {}, but has {}, which is not in hosts.list", hosts.links,
                     missing, *std::ranges::min_element(names));
}

// Whether a plan knows enough to say that something does not fit.
bool knows_memory(const plan::Plan& plan) {
  if (plan.recipe.hosts.backend == recipe::BackendKind::local) return true;
  const auto has_gpus = [](const plan::Plan::Host& host) {
    return host.gpus && !host.gpus->empty();
  };
  const auto states_memory = [](const recipe::RecipeHost& host) { return host.memory.has_value(); };
  return std::ranges::any_of(plan.hosts, has_gpus) ||
         std::ranges::any_of(plan.recipe.hosts.list, states_memory);
}

// With "auto" the other values of what saves memory are planned, too.
std::vector<PipelineQuestion> questions_of(const plan::Plan& plan, const PipelineQuestion& plain,
                                           models::ModelDescription& recomputing) {
  if (!knows_memory(plan)) return {plain};
  recipe::Recipe::Model other = plan.recipe.model;
  other.recompute = recipe::Recompute::layer;
  const std::int64_t bytes = recompute_layers(other, recomputing);
  return memory_questions(plan, plain,
                          {recomputing, plain.train, bytes, plain.before, other.recompute});
}

const PipelineQuestion& taken_question(const std::vector<PipelineQuestion>& questions,
                                       const recipe::Recipe& recipe) {
  return *std::ranges::find_if(questions, [&recipe](const PipelineQuestion& one) {
    return one.recompute == recipe.model.recompute && one.moments == recipe.train.moments &&
           one.offload == recipe.train.offload;
  });
}

// The pipeline of a plan whose layout has been chosen.
void plan_whole_pipeline(plan::Plan& plan, const models::ModelConfig& config,
                         const PipelineQuestion& question) {
  recipe::Recipe resolved = plan.recipe;
  resolved.train.micro_batch = micro_batch_rows(plan, question);
  if (resolved.pipeline.partition.kind != recipe::PartitionKind::profile) {
    plan_pipeline(plan, resolved, question);
    return;
  }
  recipe::Recipe kept = resolved;
  if (keep_profiled_cut(question.before, kept) && seconds_of_step(plan, kept, question)) {
    plan_pipeline(plan, kept, question);
    return;
  }
  // Finds every fault of the recipe before layers are measured, which takes longest.
  plan::Plan checked = plan;
  plan_pipeline(checked, by_cost(resolved), question);
  PipelineQuestion measured = question;
  measured.layer_times = profile_layers(config, question.model, profile_of(resolved));
  plan_pipeline(plan, resolved, measured);
}

// Of hosts that are not planned yet, any may have a GPU.
models::ModelDescription describe_on_hosts(const plan::Plan& plan,
                                           const models::ModelConfig& config) {
  models::CostQuestion question{plan.recipe.data.row, value_bytes(plan.recipe.model)};
  question.on_cpu = !plan.hosts.empty();
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    question.on_cpu = question.on_cpu && !plan::computes_on_gpus(plan, i);
  }
  return models::describe(config, question);
}

}  // namespace

PlannedRun make_plan(const recipe::Recipe& recipe, const plan::Plan* before,
                     const recipe::LinkTable* speeds) {
  check_device(recipe);
  PlannedRun run;
  plan::Plan& plan = run.plan;
  plan.model_config = read_config(recipe.model.path, before != nullptr);
  ChosenWeights chosen{recipe, ""};
  if (before == nullptr) {  // a resumed run has already chosen
    chosen = with_chosen_checkpoint(recipe);
    chosen.recipe = with_adapter_settings(std::move(chosen.recipe), plan.model_config);
  }
  plan.recipe = std::move(chosen.recipe);
  plan.model_hash = store::hash_text(plan.model_config);
  if (before != nullptr) check_same_model(*before, plan);
  const models::ModelConfig config = planned_model(plan);
  models::ModelDescription model = describe_on_hosts(plan, config);
  // An adapter of PEFT may contain more patterns than it uses.
  if (before == nullptr && recipe.model.lora && recipe.model.adapter.empty()) {
    models::check_pattern_use(model, *config.lora);
  }
  check_rates(recipe, model);
  // The checkpoint of a run that trains the whole model contains all of its weights.
  if (before == nullptr) check_has_weights(plan.recipe.model);
  if (before == nullptr || plan.recipe.model.lora) check_weights(plan.recipe.model, config);
  // A resumed run does not need the adapter that it started from.
  if (before == nullptr && !recipe.model.adapter.empty()) {
    const AdapterWeights adapter(recipe.model.adapter, config);
  }
  if (before == nullptr) check_reference(plan.recipe, plan.model_config, config);
  read_data_sets(run, recipe, model, before);
  if (before == nullptr) {
    for (const std::string& note :
         {chosen.warning, adapter_note(recipe.model, plan.model_config)}) {
      if (!note.empty()) run.train.notes.push_back(note);
    }
  }

  plan_hosts(plan, speeds, before);
  model = describe_on_hosts(plan, config);
  // With "auto" the other value of recompute is planned, too.
  models::ModelDescription recomputing = model;
  const std::int64_t recomputed = recompute_layers(recipe.model, model);
  const PipelineQuestion plain{model,
                               run.train,
                               recomputed,
                               before,
                               recipe.model.recompute,
                               plan.recipe.train.moments,
                               plan.recipe.train.offload};
  const std::vector<PipelineQuestion> questions = questions_of(plan, plain, recomputing);
  if (plan.recipe.codec.budget > 0) {
    run.train.notes.push_back(choose_codec(plan, questions.front()));
  }
  const plan::Plan open = plan;
  if (chooses_layout(plan.recipe)) {
    const std::string taken = plan_layout(plan, questions);
    if (!taken.empty()) run.train.notes.push_back(taken);
    count_steps(plan, run.train);
  }
  const PipelineQuestion& question = taken_question(questions, plan.recipe);
  plan_whole_pipeline(plan, config, question);
  if (!plan.replica_rows.empty()) count_steps(plan, run.train);
  plan.parts = step_parts(plan);
  if (plan.layouts.empty()) compare_layouts(plan, open, question);
  for (const std::string& note : {slower_layout_note(plan), codec_note(plan, open, question),
                                  unused_speeds_note(plan), idle_offload_note(plan)}) {
    if (!note.empty()) run.train.notes.push_back(note);
  }
  return run;
}

plan::Plan inference_plan(const plan::Plan& trained) {
  plan::Plan plan = trained;
  plan.recipe.train.micro_batch = trained.micro_batch_rows();
  plan.recipe.pipeline.replicas = 1;
  plan.recipe.pipeline.rows.reset();
  plan.replica_rows.clear();
  plan.recipe.sync = {};
  plan.sync_method.clear();
  plan.sync_strength.reset();
  plan.sync_offers.clear();
  plan.train = {};
  plan.eval.reset();
  std::erase_if(plan.processes,
                [](const plan::Plan::Process& process) { return process.name.replica != 0; });
  std::erase_if(plan.links, [](const plan::Plan::Link& link) {
    return link.use != plan::Plan::Use::boundary || link.listens.replica != 0;
  });
  // of hosts that stay: from the former number to the new one
  std::map<std::size_t, std::size_t> numbers;
  for (const plan::Plan::Process& process : plan.processes) numbers[process.host_index];
  // Empty if hosts have no names until they join.
  const std::vector<recipe::RecipeHost> named = std::exchange(plan.recipe.hosts.list, {});
  plan.hosts.clear();
  for (auto& [former, number] : numbers) {
    number = plan.hosts.size();
    plan.hosts.push_back(trained.hosts.at(former));
    if (former < named.size()) plan.recipe.hosts.list.push_back(named[former]);
  }
  for (plan::Plan::Process& process : plan.processes) {
    process.host_index = numbers.at(process.host_index);
  }
  return plan;
}

}  // namespace strait::planner
