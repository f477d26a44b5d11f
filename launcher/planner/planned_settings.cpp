#include <fmt/ranges.h>

#include <numeric>

#include "framework/codec/upcoming_uses.h"
#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/known_gpus.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/speeds.h"
#include "stages/partition.h"

namespace strait::planner {
namespace {

bool on_gpus(const plan::Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe;
  return recipe.model.device == recipe::Device::cuda ||
         std::ranges::any_of(plan.hosts,
                             [](const auto& host) { return host.gpus && !host.gpus->empty(); });
}

}  // namespace

std::int64_t assumed_pass_tokens(const plan::Plan& plan) {
  return on_gpus(plan) ? plan::kAssumedPassTokensOfGpu : plan::kPassTokensOfCpu;
}

bool chooses_shape(const recipe::Recipe& recipe) {
  return recipe.pipeline.choose_stages || recipe.pipeline.choose_replicas;
}

bool chooses_layout(const recipe::Recipe& recipe) {
  return chooses_shape(recipe) || recipe.pipeline.choose_schedule ||
         recipe.model.choose_recompute || recipe.train.choose_moments ||
         recipe.train.choose_offload;
}

void take(const PipelineQuestion& question, recipe::Recipe& recipe) {
  recipe.model.recompute = question.recompute;
  recipe.train.moments = question.moments;
  recipe.train.offload = question.offload;
}

std::vector<PipelineQuestion> memory_questions(const plan::Plan& plan,
                                               const PipelineQuestion& plain,
                                               const PipelineQuestion& recomputing) {
  using recipe::Moments;
  const recipe::Recipe& recipe = plan.recipe;
  PipelineQuestion waiting_in_host_memory = plain;
  waiting_in_host_memory.recompute = recipe::Recompute::offload;
  std::vector<const PipelineQuestion*> activations{&plain};
  if (recipe.model.choose_recompute) {
    const bool slices = recipe.pipeline.slices.value_or(1) > 1;
    if (on_gpus(plan) && !slices) activations.push_back(&waiting_in_host_memory);
    activations.push_back(&recomputing);
  }
  std::vector<recipe::Offload> offloads{recipe.train.offload};
  if (recipe.train.choose_offload) {
    offloads.insert(offloads.end(), {recipe::Offload::optimizer, recipe::Offload::disk});
  }
  std::vector<Moments> moments{recipe.train.moments};
  if (recipe.train.choose_moments) moments = {Moments::float32, Moments::bfloat16, Moments::int8};
  std::vector<PipelineQuestion> questions;
  for (const recipe::Offload offload : offloads) {
    for (const Moments type : moments) {
      for (const PipelineQuestion* one : activations) {
        PipelineQuestion& question = questions.emplace_back(*one);
        question.moments = type;
        question.offload = offload;
      }
    }
  }
  return questions;
}

std::string taken_text(const recipe::Recipe& asked, const recipe::Recipe& chosen) {
  std::vector<std::string> taken;
  const auto add = [&](bool open, const char* key, auto before, auto now) {
    if (open && before != now) {
      taken.push_back(fmt::format("{} = \"{}\"", key, recipe::name_of(now)));
    }
  };
  const recipe::Recipe::Train& train = chosen.train;
  add(asked.model.choose_recompute, "model.recompute", asked.model.recompute,
      chosen.model.recompute);
  add(asked.train.choose_moments, "train.moments", asked.train.moments, train.moments);
  add(asked.train.choose_offload, "train.offload", asked.train.offload, train.offload);
  return fmt::format("{}", fmt::join(taken, " and "));
}

recipe::Recipe by_cost(recipe::Recipe recipe) {
  recipe::Recipe::Partition& partition = recipe.pipeline.partition;
  if (partition.kind == recipe::PartitionKind::profile) {
    partition.kind = recipe::PartitionKind::balanced;
  }
  return recipe;
}

std::optional<double> seconds_of_step(plan::Plan plan, const recipe::Recipe& resolved,
                                      const PipelineQuestion& question) {
  try {
    plan_pipeline(plan, resolved, question);
  } catch (const stages::PartitionError&) {
    return std::nullopt;
  } catch (const base::UserError&) {
    return std::nullopt;
  }
  return plan.step_seconds;
}

std::int64_t micro_batch_rows(const plan::Plan& plan, const PipelineQuestion& question) {
  const recipe::Recipe& recipe = plan.recipe;
  if (recipe.train.micro_batch) return *recipe.train.micro_batch;
  PipelineQuestion compared = question;
  compared.pass_tokens = assumed_pass_tokens(plan);
  const auto forecast = [&](std::int64_t rows) {
    recipe::Recipe resolved = by_cost(recipe);
    resolved.train.micro_batch = rows;
    return seconds_of_step(plan, resolved, compared);
  };
  std::int64_t rows = recipe.train.batch / recipe.pipeline.replicas;
  const auto& stated = recipe.pipeline.rows;
  if (stated && !stated->empty()) {
    rows = 0;
    for (const std::int64_t own : *stated) rows = std::gcd(rows, own);
  }
  const plan::Plan* const before = question.before;
  if (before != nullptr && !before->recipe.train.micro_batch &&
      rows % before->micro_batch_rows() == 0 && forecast(before->micro_batch_rows())) {
    return before->micro_batch_rows();
  }
  return best_micro_batch(rows, forecast);
}

bool leaves_rows_open(const recipe::Recipe& recipe) {
  if (recipe.pipeline.rows || recipe.pipeline.replicas == 1) return false;
  const std::string method = recipe::sync_method_of(recipe);
  return method == recipe::kAutomaticSync || allows_unequal_rows(method);
}

std::optional<std::vector<std::int64_t>> rows_kept_from(const plan::Plan& plan,
                                                        const recipe::Recipe& resolved,
                                                        std::span<const std::size_t> hosts,
                                                        const plan::Plan* before) {
  if (before == nullptr || before->recipe.pipeline.rows ||
      before->recipe.pipeline.replicas != resolved.pipeline.replicas ||
      before->recipe.pipeline.stages != resolved.pipeline.stages ||
      before->recipe.train.batch != resolved.train.batch ||
      before->micro_batch_rows() != *resolved.train.micro_batch) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (plan.hosts.at(hosts[i]).name != before->processes.at(i).host) return std::nullopt;
  }
  return before->replica_rows;
}

void set_rows(plan::Plan& plan, std::vector<std::int64_t> rows, std::int64_t micro_batch) {
  const std::int64_t replicas = plan.recipe.pipeline.replicas;
  const bool equal =
      std::ranges::all_of(rows, [&](std::int64_t own) { return own == rows.front(); });
  plan.replica_rows = equal ? std::vector<std::int64_t>() : std::move(rows);
  const std::int64_t most = plan.replica_rows.empty() ? plan.recipe.train.batch / replicas
                                                      : std::ranges::max(plan.replica_rows);
  plan.micro_batches = most / micro_batch;
}

std::vector<recipe::Recipe> with_schedules(const recipe::Recipe& recipe, bool cut_by_speed) {
  std::vector<recipe::Recipe> all;
  const bool chunks_stated = recipe.pipeline.chunks.has_value();
  for (const auto& [schedule, chunks] :
       {std::pair("zero_bubble", 1), {"interleaved", 2}, {"interleaved", 4}, {"gpipe", 1}}) {
    if (recipe.pipeline.stages == 1 || (chunks_stated && recipe.pipeline.chunks != chunks)) {
      continue;
    }
    recipe::Recipe::Pipeline& pipeline = all.emplace_back(recipe).pipeline;
    pipeline.schedule = schedule;
    if (chunks == 1) continue;
    pipeline.chunks = chunks;
    if (cut_by_speed) pipeline.partition = {};
  }
  return all;
}

std::vector<KnownGpus> gpus_of_hosts(const recipe::Recipe& recipe,
                                     const recipe::LinkTable& speeds) {
  std::vector<KnownGpus> gpus;
  for (const recipe::RecipeHost& host : plan::hosts_of(recipe)) {
    const recipe::MeasuredHost* known = speeds.host(host.name);
    KnownGpus& of_host = gpus.emplace_back();
    if (recipe.model.device == recipe::Device::cpu) {
      of_host.emplace();
    } else if (known != nullptr && known->gpu_memory) {
      of_host = known->gpu_memory;
    } else if (recipe.hosts.backend == recipe::BackendKind::local) {
      of_host = base::gpu_memory_here();
    } else if (const recipe::KnownGpu* gpu = recipe::known_gpu(host.device); gpu != nullptr) {
      const auto count = host.devices.empty() ? static_cast<std::size_t>(host.slots.value_or(1))
                                              : host.devices.size();
      of_host.emplace(std::max<std::size_t>(count, 1), gpu->gibibytes << 30);
    }
  }
  return gpus;
}

// Cores of other hosts are not known until they report them, so they are assumed to equal those of
// this one.
std::int64_t threads_of(const recipe::Recipe& recipe, std::int64_t processes_of_host) {
  if (recipe.pipeline.threads) return *recipe.pipeline.threads;
  return std::max<std::int64_t>(1, base::usable_cores() / processes_of_host);
}

// Decides as codec::ActivationCache does, which searches a limited number of rows for the next use
// of a sample; for the replica with the fewest rows. An epoch that ends inside a step brings some
// samples early.
bool fills_caches(const plan::Plan& plan) {
  const std::int64_t replicas = plan.recipe.pipeline.replicas;
  const auto looked_at = static_cast<std::int64_t>(codec::UpcomingUses::kMostAhead);
  return plan.slices * plan.steps * (plan.recipe.train.batch / replicas) >
         std::min(plan.slices * (plan.train.rows / replicas), looked_at);
}

bool fits_memory(const plan::Plan& plan) {
  const std::vector<recipe::RecipeHost> hosts = plan::hosts_of(plan.recipe);
  const bool here = plan.recipe.hosts.backend == recipe::BackendKind::local;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::int64_t known = here ? base::host_memory().total : hosts[i].memory.value_or(0);
    const std::int64_t needed = plan::held_bytes(plan, i) + plan::host_memory_needed(plan, i);
    if (known > 0 && needed > known) return false;
    if (!plan::fits_gpu_memory(plan, i)) return false;
  }
  return true;
}

void check_simulated_link(const plan::Plan& plan) {
  const std::string& name = plan.recipe.hosts.simulate_link;
  if (name.empty()) return;
  std::vector<std::string> names;
  for (const plan::Plan::Link& link : plan.links) names.push_back(link.name);
  if (std::ranges::count(names, name) > 0) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "hosts.simulate.link = \"{}\" is not a link of this plan; {}", name,
                        names.empty() ? "it has none, so leave hosts.simulate out"
                                      : fmt::format("set it to one of {}, or leave it out for all",
                                                    fmt::join(names, ", ")));
}

}  // namespace strait::planner
