#include "launcher/recipe/plan.h"

#include "framework/fields/json_fields.h"
#include "framework/store/file_hash.h"
#include "launcher/base/errors.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/recipe/run_files.h"
#include "schedules/action_lists.h"
#include "schedules/evaluation_shard.h"
#include "schedules/schedule.h"

namespace strait::fields {

template <>
struct OwnJson<recipe::Recipe> {
  static nlohmann::json write(const recipe::Recipe& recipe) {
    return recipe::recipe_to_json(recipe);
  }
  static recipe::Recipe read(const nlohmann::json& json) {
    return recipe::recipe_from_json(json, "plan");
  }
};
template <>
inline constexpr std::tuple kListForm<models::LayerRange> = {&models::LayerRange::first,
                                                             &models::LayerRange::last};
template <>
inline constexpr std::array kEnumNames<plan::Plan::Use> = {"boundary", "tie", "replica",
                                                           "consensus"};
template <>
inline constexpr std::array kEnumNames<plan::StepPart::Kind> = {
    "step", "compute", "update", "encode", "decode", "link", "sync", "wait"};

// Structs of other rooms, which have no JSON of their own.
void describe(auto& f, Is<sync::Strength> auto& m) {
  f("random", m.random), f("top", m.top), f("bits", m.bits);
}
void describe(auto& f, Is<recipe::MeasuredHost> auto& m) {
  f("name", m.name), f("flops_per_second", m.flops_per_second), f("backward", m.backward);
  f("threads", m.threads), f("memory_bytes_per_second", m.memory_bytes_per_second);
  f("waited", m.waited), f("gpu_memory", m.gpu_memory);
}
void describe(auto& f, Is<recipe::MeasuredLink> auto& m) {
  f("from", m.from), f("to", m.to), f("bits_per_second", m.bits_per_second);
  f("flows_bits_per_second", m.flows_bits_per_second), f("seconds", m.seconds);
}

}  // namespace strait::fields

namespace strait::plan {

// The keys of plan.json.
void describe(auto& f, fields::Is<Plan::Data> auto& m) {
  f("file", m.file), f("hash", m.hash), f("rows", m.rows);
}
void describe(auto& f, fields::Is<Plan::Host> auto& m) {
  f("name", m.name), f("cores", m.cores), f("memory", m.memory);
  f("gpus", m.gpus), f("device", m.device), f("processor", m.processor);
}
void describe(auto& f, fields::Is<Plan::Process> auto& m) {
  f("name", m.name), f("host", m.host), f("host_index", m.host_index), f("chunks", m.chunks);
  f("threads", m.threads), f("parameters", m.parameters), f("state_bytes", m.state_bytes);
  f("activation_bytes", m.activation_bytes), f("cache_bytes", m.cache_bytes);
  f("in_flight", m.in_flight), f("saved_bytes", m.saved_bytes), f("sync_bytes", m.sync_bytes);
  f("group", m.group), f("offloaded_bytes", m.offloaded_bytes), f("disk_bytes", m.disk_bytes);
  f("waiting_bytes", m.waiting_bytes);
}
void describe(auto& f, fields::Is<Plan::Link> auto& m) {
  f("name", m.name), f("use", m.use), f("connects", m.connects), f("listens", m.listens);
  f("position", m.position), f("forward_bytes", m.forward_bytes),
      f("backward_bytes", m.backward_bytes);
  f("first_forward_bytes", m.first_forward_bytes), f("entry_bytes", m.cache.entry_bytes);
  f("cache_bytes", m.cache.memory_bytes), f("cache_disk_bytes", m.cache.disk_bytes);
  f("cached_rows", m.cache.rows);
}
void describe(auto& f, fields::Is<Plan::SyncOffer> auto& m) {
  f("method", m.method), f("step_bytes", m.step_bytes), f("round_bytes", m.round_bytes);
  f("slot_bytes", m.slot_bytes), f("staleness", m.staleness), f("step_seconds", m.step_seconds);
  f("slowdown", m.slowdown), f("strength", m.strength);
}
void describe(auto& f, fields::Is<Layout> auto& m) {
  f("stages", m.stages), f("replicas", m.replicas), f("hosts", m.hosts);
  f("step_seconds", m.step_seconds), f("layers", m.layers), f("schedule", m.schedule);
  f("depth", m.depth), f("micro_batch", m.micro_batch), f("recomputes", m.recomputes);
  f("limit", m.limit);
}
void describe(auto& f, fields::Is<StepPart> auto& m) {
  f("kind", m.kind), f("process", m.process), f("name", m.name), f("link", m.link);
  f("seconds", m.seconds), f("first_epoch_seconds", m.first_epoch_seconds);
  f("assumed", m.assumed);
}
void describe(auto& f, fields::Is<Plan> auto& m) {
  f("recipe", m.recipe), f("model_config", m.model_config), f("model_hash", m.model_hash);
  f("train", m.train), f("eval", m.eval), f("steps", m.steps);
  f("micro_batches", m.micro_batches), f("replica_rows", m.replica_rows);
  f("eval_micro_batches", m.eval_micro_batches);
  f("depth", m.depth), f("slices", m.slices), f("epoch_steps", m.epoch_steps);
  f("step_seconds", m.step_seconds);
  f("first_epoch_step_seconds", m.first_epoch_step_seconds);
  f("reference_seconds", m.reference_seconds), f("sync_method", m.sync_method);
  f("sync_strength", m.sync_strength), f("sync_offers", m.sync_offers);
  f("parts", m.parts), f("layouts", m.layouts), f("hosts", m.hosts);
  f("measured_hosts", m.speeds.hosts);
  if constexpr (std::is_const_v<std::remove_reference_t<decltype(m)>>) {
    f("measured_links", m.speeds.links.list());
  } else {
    std::vector<recipe::MeasuredLink> links;
    f("measured_links", links);
    m.speeds.links = std::move(links);
  }
  f("processes", m.processes), f("links", m.links);
}

namespace {

constexpr int kMostLayers = 1 << 20;  // above any model; sums of them do not overflow

[[noreturn]] void refuse_plan(const std::string& why) {
  throw base::UserError(base::ExitCode::mismatch, "invalid plan: " + why);
}

}  // namespace

std::string Plan::SyncOffer::name() const {
  return strength ? fmt::format("{} {}", method, strength->text()) : method;
}

sync::ReplicaGroups groups_of(const Plan& plan, std::uint32_t stage) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_leader;
  for (const Plan::Process& process : plan.processes) {
    if (process.name.stage != stage) continue;
    // A replica without a group is one of its own.
    by_leader[process.group.value_or(process.name.replica)].push_back(process.name.replica);
  }
  sync::ReplicaGroups groups;
  for (auto& [leader, members] : by_leader) groups.push_back(std::move(members));
  return groups;
}

const Plan::Process& Plan::process(net::ProcessName name) const {
  // In this order, so that a plan of a thousand finds each at once.
  const std::size_t at =
      std::size_t{name.replica} * static_cast<std::size_t>(recipe.pipeline.stages) + name.stage;
  if (at < processes.size() && processes[at].name == name) return processes[at];
  for (const Process& candidate : processes) {
    if (candidate.name == name) return candidate;
  }
  throw base::UserError(base::ExitCode::mismatch, "the plan has no process " + name.text());
}

std::int64_t Plan::micro_batch_rows() const {
  if (recipe.train.micro_batch) return *recipe.train.micro_batch;
  const std::int64_t most = replica_rows.empty() ? recipe.train.batch / recipe.pipeline.replicas
                                                 : std::ranges::max(replica_rows);
  return most / micro_batches;
}

std::int64_t Plan::micro_batches_of(std::uint32_t replica) const {
  return replica_rows.empty() ? micro_batches : replica_rows.at(replica) / micro_batch_rows();
}

std::int64_t Plan::snapshot_bytes(const Process& process) const {
  // State on a GPU is copied to the host at once, in the last checkpoint too.
  const std::int64_t offloaded = process.offloaded_bytes + process.disk_bytes;
  const bool on_gpu = gpu_of(process).has_value();
  if (on_gpu && offloaded == 0) return process.saved_bytes;
  if (!saves_during_training(recipe)) return 0;
  const std::int64_t state = offloaded + (on_gpu ? 0 : process.state_bytes);
  return std::min(recipe.checkpoint.memory, state + process.cache_bytes);
}

std::int64_t Plan::memory_bytes(const Process& process) const {
  // Allocated by libtorch, oneDNN and ZeroMQ once a stage trains: 5 to 39 MB in 31 small runs
  // (tests/bench/memory_plan.py), most with bfloat16 on a CPU.
  constexpr std::int64_t kRuntimeBytes = 20'000'000;
  // Activations of several sizes come and go, and leave holes in glibc's heap: 23 to 28 % of them
  // in models of 39 million parameters, one stage and two (the same bench).
  const std::int64_t holes = process.activation_bytes / 4;
  return compute_bytes(process) + holes + host_bytes(process) + kRuntimeBytes;
}

std::int64_t Plan::host_bytes(const Process& process) const {
  // Replicas of stages on GPUs exchange values and gradients in host memory: 8 bytes for each
  // parameter, whose saved state has 12. Off-loaded values are there in any case.
  const bool exchanged = recipe.pipeline.replicas > 1 && gpu_of(process);
  const bool offloads = process.offloaded_bytes + process.disk_bytes > 0;
  const std::int64_t copies = process.saved_bytes / 3 * (offloads ? 1 : 2);
  return process.offloaded_bytes + process.waiting_bytes + process.cache_bytes +
         process.sync_bytes + snapshot_bytes(process) + (exchanged ? copies : 0);
}

std::int64_t Plan::index_on_host(const Process& process) const {
  return std::ranges::count_if(processes, [&](const Process& other) {
    return other.host_index == process.host_index && &other < &process;
  });
}

std::optional<std::size_t> Plan::gpu_of(const Process& process) const {
  const auto& gpus = hosts.at(process.host_index).gpus;
  if (!gpus || gpus->empty()) return std::nullopt;
  return static_cast<std::size_t>(index_on_host(process)) % gpus->size();
}

bool saves_during_training(const recipe::Recipe& recipe) {
  const bool repeated = recipe.checkpoint.every > 0 || recipe.checkpoint.memory_every > 0;
  return repeated && recipe.checkpoint.memory > 0 && recipe.sync.on_loss == recipe::LossRule::stop;
}

schedules::ActionList Plan::training_actions(net::ProcessName name) const {
  const schedules::PipelineShape shape{
      static_cast<int>(recipe.pipeline.stages), static_cast<int>(micro_batches_of(name.replica)),
      static_cast<int>(depth), static_cast<int>(chunks()), static_cast<int>(slices)};
  return schedules::action_list(schedules::schedule_named(recipe.pipeline.schedule), shape,
                                static_cast<StageIndex>(name.stage));
}

schedules::ActionList Plan::evaluation_actions(net::ProcessName name) const {
  return evaluation_actions(name, static_cast<std::size_t>(recipe.pipeline.replicas), name.replica);
}

schedules::ActionList Plan::evaluation_actions(net::ProcessName name, std::size_t replicas,
                                               std::size_t index) const {
  // By the rows of a training step, as long as no replica is lost.
  std::vector<std::int64_t> weights(replicas, 1);
  if (replicas == replica_rows.size()) weights = replica_rows;
  const std::int64_t own = schedules::evaluation_micro_batches(eval_micro_batches, weights, index);
  if (own == 0) return {};
  const schedules::PipelineShape shape{static_cast<int>(recipe.pipeline.stages),
                                       static_cast<int>(own), 0, static_cast<int>(chunks())};
  return schedules::forward_only(shape, static_cast<StageIndex>(name.stage));
}

std::string Plan::hash() const {
  // Paths differ between hosts, and no host knows the secrets of another.
  Plan without_paths = without_secrets(*this);
  without_paths.train.file.clear();
  without_paths.recipe.model.path.clear();
  without_paths.recipe.model.weights_run.clear();
  without_paths.recipe.model.adapter.clear();
  without_paths.recipe.train.preference.reference.clear();
  if (without_paths.eval) without_paths.eval->file.clear();
  return store::hash_text(to_json(without_paths).dump());
}

nlohmann::json to_json(const Plan& plan) { return fields::to_object(plan); }

Plan plan_from_json(const nlohmann::json& from) {
  Plan plan;
  try {
    plan = fields::from_object<Plan>(from, "plan");
  } catch (const base::MessageError& error) {
    throw base::UserError(base::ExitCode::mismatch,
                          "this is not a plan of this build ({}); was it made by another "
                          "version of strait?",
                          error.what());
  }
  // From here on a plan of this build, but perhaps edited by hand: only what would index out of
  // range or overflow is checked.
  if (plan.processes.empty()) refuse_plan("it has no processes");
  for (const Plan::Process& process : plan.processes) {
    if (process.chunks.empty()) {
      refuse_plan("process " + process.name.text() + " has no layers");
    }
    if (process.host_index >= plan.hosts.size()) {
      refuse_plan("process " + process.name.text() + " is on a host that it does not list");
    }
    if (process.threads < 1 || process.chunks.size() != plan.processes.front().chunks.size() ||
        std::ranges::any_of(process.chunks, [](models::LayerRange layers) {
          return layers.first < 0 || layers.last < layers.first || layers.last > kMostLayers;
        })) {
      refuse_plan("process " + process.name.text() + " has impossible threads or layers");
    }
  }
  for (const Plan::Link& link : plan.links) {
    if (link.position < 0 || link.position > kMostLayers) {
      refuse_plan("link " + link.name + " has no position");
    }
  }
  if (plan.micro_batches < 1) refuse_plan("its steps have no micro-batches");
  const auto& rows = plan.replica_rows;
  if (!rows.empty() && (std::ssize(rows) != plan.recipe.pipeline.replicas ||
                        std::ranges::any_of(rows, [](auto one) { return one < 1; }))) {
    refuse_plan("it does not have a number of rows for each replica");
  }
  return plan;
}

recipe::Recipe resolved_recipe(const Plan& plan) {
  recipe::Recipe recipe = plan.recipe;
  if (recipe::sync_method_of(recipe) == recipe::kAutomaticSync) {
    recipe.sync.method = plan.sync_method;
    // These keys set a strength, but the chosen method has none.
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
