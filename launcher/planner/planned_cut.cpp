#include "launcher/planner/planned_cut.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/planner/planned_model.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/speeds.h"
#include "schedules/choose_depth.h"
#include "stages/activation_offload.h"
#include "stages/partition.h"

namespace strait::planner {
namespace {

// Mean of all hosts, each with all of its cores.
double seconds_per_flop(const partition::Cluster& cluster) {
  double sum = 0;
  for (const partition::Host& host : cluster.hosts) {
    sum += host.seconds_per_flop.value_or(1 / (plan::kAssumedFlopsPerThread * host.cores));
  }
  return sum / static_cast<double>(cluster.hosts.size());
}

std::int64_t micro_batch_tokens(const recipe::Recipe& recipe) {
  return *recipe.train.micro_batch * recipe.data.row;
}

partition::ModelDescription partition_view(const recipe::Recipe& recipe,
                                           const models::ModelDescription& model) {
  const std::int64_t bytes = value_bytes(recipe.model);
  partition::ModelDescription view;
  view.family = model.family;
  view.tied_parameters = model.tied_parameters;
  view.tied_trained = model.tied_trained;
  for (const models::LayerCost& layer : model.layers) {
    partition::Layer& one = view.layers.emplace_back();
    one.name = layer.name;
    one.parameters = layer.parameters;
    one.frozen_parameters = layer.parameters - layer.trained;
    one.quantized_parameters = layer.quantized.parameters;
    one.quantized_bytes = layer.quantized.bytes;
    one.working_bytes = layer.quantized.largest_matrix * bytes +
                        layer.working_bytes_per_token * micro_batch_tokens(recipe);
    one.forward_flops_per_token = layer.forward_flops_per_token;
    one.backward_factor = layer.backward_factor;
    one.saved_bytes_per_token = layer.saved_bytes_per_token;
    one.output_bytes_per_token = layer.output_width * bytes;
  }
  view.layers.back().working_bytes = model.logits_bytes(micro_batch_tokens(recipe));
  return view;
}

// Number of micro-batches that each stage holds at the least depth that the recipe allows.
std::vector<int> in_flight(const recipe::Recipe& recipe, std::int64_t micro_batches) {
  const schedules::Schedule& schedule = plan_schedule(recipe, micro_batches);
  const schedules::PipelineShape shape =
      shape_of(recipe, micro_batches, recipe.pipeline.depth.value_or(0));
  constexpr int kMost = stages::ActivationOffload::kPassesOnDevice;
  const bool offloads = recipe.model.recompute == recipe::Recompute::offload;
  std::vector<int> by_stage;
  by_stage.reserve(static_cast<std::size_t>(shape.stages));
  for (int s = 0; s < shape.stages; ++s) {
    const int all = schedule.most_in_flight(shape, StageIndex{s});
    by_stage.push_back(offloads ? std::min(all, kMost * shape.chunks) : all);
  }
  return by_stage;
}

// Limits the memory of this machine for plugins only, because they choose hosts. Ranges and
// built-in partitions are not limited: the plan may be for another machine.
std::int64_t memory_of(const recipe::RecipeHost& host, const recipe::Recipe& recipe) {
  const bool here = recipe.hosts.backend == recipe::BackendKind::local &&
                    recipe.pipeline.partition.kind == recipe::PartitionKind::plugin;
  if (host.memory || !here) return host.memory.value_or(0);
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// The cores of other hosts are not known yet, so they are assumed to equal those of this one.
partition::Cluster cluster_of(const recipe::Recipe& recipe, const recipe::LinkTable& speeds) {
  const std::vector<KnownGpus> gpus = gpus_of_hosts(recipe, speeds);
  const std::vector<recipe::RecipeHost> hosts = plan::hosts_of(recipe);
  const auto processes =
      static_cast<std::size_t>(recipe.pipeline.stages * recipe.pipeline.replicas);
  std::vector<std::size_t> places;
  for (const std::string& name : recipe.pipeline.hosts) {
    places.push_back(static_cast<std::size_t>(
        std::ranges::find(hosts, name, &recipe::RecipeHost::name) - hosts.begin()));
  }
  if (places.empty()) places = plan::assign_hosts(hosts, processes);
  partition::Cluster cluster;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    partition::Host& host = cluster.hosts.emplace_back();
    host.name = hosts[i].name;
    host.slots = static_cast<int>(hosts[i].slots.value_or(std::ranges::count(places, i)));
    host.cores = static_cast<int>(base::usable_cores());
    host.memory_bytes = memory_of(hosts[i], recipe);
    host.gpu_bytes = gpus[i].value_or(std::vector<std::int64_t>());
    host.gpu_process_bytes = plan::kGpuContextBytes;
  }
  return cluster;
}

// Adds measured speeds.
void add_speeds(const recipe::LinkTable& speeds, partition::Cluster& cluster) {
  for (partition::Host& host : cluster.hosts) {
    const recipe::MeasuredHost* known = speeds.host(host.name);
    if (known != nullptr && known->flops_per_second > 0) {
      host.seconds_per_flop = 1 / known->flops_per_second;
    }
  }
  for (std::size_t from = 0; from < cluster.hosts.size(); ++from) {
    for (std::size_t to = 0; to < cluster.hosts.size(); ++to) {
      const recipe::MeasuredLink* known =
          speeds.link(cluster.hosts[from].name, cluster.hosts[to].name);
      if (known != nullptr) {
        cluster.links.push_back({from, to, known->bits_per_second, known->seconds});
      }
    }
  }
}

// A partition, and its name in errors.
struct NamedPartition {
  partition::Partition cut;
  std::string name;
};

// "FILE", "FILE#NAME", or "#NAME" for a partition that is linked into this program.
NamedPartition plugin_partition(const std::string& file_and_name) {
  const std::size_t folder_end = file_and_name.rfind('/');  // folders may have a '#'
  const std::size_t hash =
      file_and_name.find('#', folder_end == std::string::npos ? 0 : folder_end + 1);
  if (hash == 0) {
    const std::string own = file_and_name.substr(1);
    const stages::PartitionOffer* const offer = stages::partitions().find(own);
    if (offer == nullptr) {
      throw base::UserError(base::ExitCode::bad_input,
                            "pipeline.partition: this program has no partition \"{}\"; it has {}",
                            own, fmt::join(stages::partitions().names(), ", "));
    }
    return {offer->cut, fmt::format("the partition \"{}\"", own)};
  }
  const std::string file = file_and_name.substr(0, hash);
  const std::vector<std::string> offered = plugin::load_plugin(file);
  std::string name = hash == std::string::npos ? "" : file_and_name.substr(hash + 1);
  if (name.empty() && offered.size() == 1) name = offered.front();
  if (std::ranges::find(offered, name) == offered.end()) {
    throw base::UserError(base::ExitCode::bad_input,
                          offered.empty()
                              ? fmt::format("the plugin {} has no partition", file)
                              : fmt::format("the plugin {} has the partitions {}; select one, as "
                                            "in pipeline.partition = \"plugin:{}#{}\"",
                                            file, fmt::join(offered, ", "), file, offered.front()));
  }
  return {stages::partitions().named(name).cut,
          fmt::format("the partition \"{}\" of {}", name, file)};
}

NamedPartition partition_of(const recipe::Recipe::Partition& partition) {
  switch (partition.kind) {
    case recipe::PartitionKind::ranges:
      return {[&partition](const partition::Question& question) {
                return stages::explicit_partition(question.model, partition.ranges,
                                                  question.chunks);
              },
              "pipeline.partition"};
    case recipe::PartitionKind::plugin:
      return plugin_partition(partition.plugin);
    default: {
      const std::string name(name_of(partition.kind));
      return {stages::partitions().named(name).cut, fmt::format("the partition \"{}\"", name)};
    }
  }
}

// `hosts`: those that the recipe names for its processes.
partition::Assignment answer_of(const NamedPartition& asked, const partition::Question& question,
                                const std::vector<std::string>& hosts) {
  try {
    partition::Assignment answer = asked.cut(question);
    for (std::size_t s = 0; s < answer.stages.size() && !hosts.empty(); ++s) {
      const std::string& name =
          hosts.at(static_cast<std::size_t>(question.replica * question.stages) + s);
      answer.stages[s].host = static_cast<std::size_t>(
          std::ranges::find(question.cluster.hosts, name, &partition::Host::name) -
          question.cluster.hosts.begin());
    }
    return stages::check_assignment(question, std::move(answer), asked.name);
  } catch (const stages::PartitionError&) {
    throw;
  } catch (const std::exception& error) {
    throw base::UserError(base::ExitCode::bad_input, "{} failed: {}", asked.name, error.what());
  }
}

partition::Question first_question(const recipe::Recipe& recipe, const recipe::LinkTable& speeds,
                                   const models::ModelDescription& model,
                                   std::int64_t micro_batches) {
  partition::Question question;
  question.model = partition_view(recipe, model);
  question.cluster = cluster_of(recipe, speeds);
  question.stages = static_cast<int>(recipe.pipeline.stages);
  question.replicas = static_cast<int>(recipe.pipeline.replicas);
  question.micro_batch_tokens = micro_batch_tokens(recipe);
  // Hosts without a GPU are checked when the whole is planned.
  const bool on_gpu = std::ranges::any_of(
      question.cluster.hosts, [](const partition::Host& host) { return !host.gpu_bytes.empty(); });
  const StateBytes bytes = state_bytes(recipe, on_gpu);
  question.bytes_per_parameter = bytes.trained;
  question.bytes_per_frozen_parameter = bytes.frozen;
  question.in_flight = in_flight(recipe, micro_batches);
  question.chunks = static_cast<int>(chunks_of(recipe));
  return question;
}

[[noreturn]] void refuse_other_layers(const NamedPartition& asked, int replica, std::size_t stage) {
  throw base::UserError(base::ExitCode::bad_input,
                        "{} assigns stage {} of replica {} other layers than that of replica 0; "
                        "all replicas of a stage hold the same layers",
                        asked.name, stage, replica);
}

// Subtracts what this replica uses from the resources of the hosts.
void take(partition::Question& question, const partition::Assignment& answer) {
  for (std::size_t s = 0; s < answer.stages.size(); ++s) {
    partition::Host& host = question.cluster.hosts[*answer.stages[s].host];
    --host.slots;
    if (!host.gpu_bytes.empty()) {
      std::int64_t& free = host.gpu_bytes[host.next_gpu++ % host.gpu_bytes.size()];
      // 0 means unknown, so unknown memory stays 0, and a full GPU keeps 1.
      const std::int64_t left =
          free - question.stage_bytes(s, answer.stages[s].chunks) - host.gpu_process_bytes;
      if (free > 0) free = std::max<std::int64_t>(left, 1);
    } else if (host.memory_bytes > 0) {
      host.memory_bytes -= question.stage_bytes(s, answer.stages[s].chunks);
    }
  }
}

}  // namespace

PlannedCut plan_cut(const recipe::Recipe& recipe, const recipe::LinkTable& speeds,
                    const models::ModelDescription& model, std::int64_t micro_batches,
                    const std::vector<LayerTime>& layer_times) {
  partition::Question question = first_question(recipe, speeds, model, micro_batches);
  add_speeds(speeds, question.cluster);
  const double slowness = seconds_per_flop(question.cluster);
  for (partition::Layer& layer : question.model.layers) {
    layer.forward_seconds =
        layer.forward_flops_per_token * static_cast<double>(question.micro_batch_tokens) * slowness;
  }
  for (std::size_t i = 0; i < layer_times.size(); ++i) {
    partition::Layer& layer = question.model.layers[i];
    layer.forward_seconds = layer_times[i].forward;
    layer.backward_factor = layer_times[i].backward / layer_times[i].forward;
  }
  const NamedPartition asked = partition_of(recipe.pipeline.partition);
  PlannedCut cut;
  std::vector<std::vector<partition::Layers>> first;  // chunks of the first replica's stages
  for (; question.replica < question.replicas; ++question.replica) {
    const partition::Assignment answer = answer_of(asked, question, recipe.pipeline.hosts);
    for (std::size_t s = 0; s < answer.stages.size(); ++s) {
      const std::vector<partition::Layers>& chunks = answer.stages[s].chunks;
      if (question.replica == 0) first.push_back(chunks);
      if (chunks != first[s]) refuse_other_layers(asked, question.replica, s);
      cut.hosts.push_back(*answer.stages[s].host);
    }
    take(question, answer);
  }
  for (std::size_t c = 0; c < first.front().size(); ++c) {
    for (const std::vector<partition::Layers>& chunks : first) {
      cut.layers.push_back({chunks[c].first, chunks[c].last});
    }
  }
  return cut;
}

StateBytes state_bytes(const recipe::Recipe& recipe, bool on_gpu) {
  const std::int64_t moments = recipe.train.moments == recipe::Moments::float32    ? 8
                               : recipe.train.moments == recipe::Moments::bfloat16 ? 4
                                                                                   : 2;
  const std::int64_t value = value_bytes(recipe.model);
  constexpr std::int64_t kMaster = 4;
  constexpr std::int64_t kGradient = 4;
  const recipe::Offload offload = recipe.train.offload;
  StateBytes bytes{.moments = moments, .saved = kMaster + moments, .frozen = value};
  // A float32 parameter is its own master on the device that updates it.
  const bool is_master = value == kMaster && (!on_gpu || offload == recipe::Offload::none);
  const std::int64_t apart = bytes.saved - (is_master ? kMaster : 0);
  bytes.trained = value + kGradient;
  if (offload == recipe::Offload::disk) {
    bytes.on_disk = apart;
  } else if (on_gpu && offload == recipe::Offload::optimizer) {
    bytes.offloaded = apart;
  } else {
    bytes.trained += apart;
  }
  return bytes;
}

std::int64_t chunks_of(const recipe::Recipe& recipe) {
  const recipe::Recipe::Pipeline& pipeline = recipe.pipeline;
  if (pipeline.chunks) return *pipeline.chunks;
  if (pipeline.partition.kind == recipe::PartitionKind::ranges) {
    return std::ssize(pipeline.partition.ranges) / pipeline.stages;
  }
  // A single stage never waits for another, so chunks would not help.
  return pipeline.stages == 1 ? 1 : schedules::schedule_named(pipeline.schedule).chunks;
}

schedules::PipelineShape shape_of(const recipe::Recipe& recipe, std::int64_t micro_batches,
                                  std::int64_t depth) {
  return {static_cast<int>(recipe.pipeline.stages), static_cast<int>(micro_batches),
          static_cast<int>(depth), static_cast<int>(chunks_of(recipe))};
}

const schedules::Schedule& plan_schedule(const recipe::Recipe& recipe, std::int64_t micro_batches) {
  try {
    const schedules::Schedule& schedule = schedules::schedule_named(recipe.pipeline.schedule);
    schedules::PipelineShape shape = shape_of(recipe, micro_batches, 0);
    const std::int64_t first = recipe.pipeline.depth.value_or(0);
    const std::int64_t last = recipe.pipeline.depth.value_or(schedules::kDeepestChosen);
    for (std::int64_t depth = first; depth <= last; ++depth) {
      shape.depth = static_cast<int>(depth);
      schedules::check_lists(schedule, shape);
    }
    return schedule;
  } catch (const std::invalid_argument& error) {
    throw base::UserError(base::ExitCode::bad_input, "pipeline.schedule: {}", error.what());
  }
}

}  // namespace strait::planner
