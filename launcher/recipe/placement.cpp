#include "launcher/recipe/placement.h"

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/run_files.h"

namespace strait::plan {

std::vector<recipe::RecipeHost> hosts_of(const recipe::Recipe& recipe) {
  if (recipe.hosts.backend == recipe::BackendKind::local)
    return {recipe::RecipeHost{.name = "localhost"}};
  return recipe.hosts.list;
}

std::vector<std::size_t> assign_hosts(const std::vector<recipe::RecipeHost>& hosts,
                                      std::size_t processes) {
  std::size_t stated = 0;
  std::size_t without_slots = 0;
  for (const recipe::RecipeHost& host : hosts) {
    stated += static_cast<std::size_t>(host.slots.value_or(0));
    without_slots += host.slots ? 0U : 1U;
  }
  if (without_slots == 0 && stated < processes) {
    throw base::UserError(base::ExitCode::bad_input,
                          "hosts.list has {}, but the run has {} (stages times "
                          "replicas); give hosts more slots, or list more hosts",
                          base::counted(static_cast<std::int64_t>(stated), "slot"),
                          base::counted(static_cast<std::int64_t>(processes), "process", "es"));
  }
  std::size_t shared = processes - std::min(stated, processes);
  std::vector<std::size_t> assigned;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::size_t count = 0;
    if (hosts[i].slots) {
      count = static_cast<std::size_t>(*hosts[i].slots);
    } else {
      count = (shared + without_slots - 1) / without_slots;
      shared -= count;
      --without_slots;
    }
    assigned.insert(assigned.end(), std::min(count, processes - assigned.size()), i);
  }
  return assigned;
}

std::vector<std::int64_t> link_ports(const Plan& plan) {
  std::vector<std::int64_t> ports(plan.hosts.size());
  for (const Plan::Link& link : plan.links) ++ports.at(plan.process(link.listens).host_index);
  return ports;
}

namespace {

double gibibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1U << 30U); }

// Empty: the host has enough cores.
std::string thread_objection(const Plan& plan, std::size_t host) {
  const std::int64_t cores = plan.hosts.at(host).cores;
  const std::int64_t threads = plan.recipe.pipeline.threads.value_or(0);
  if (cores == 0 || threads <= cores) return "";
  return fmt::format("pipeline.threads is {} ({}), but host {} has {} {}", threads,
                     plan.recipe.origins.of("pipeline.threads"), plan.hosts.at(host).name, cores,
                     cores == 1 ? "core" : "cores");
}

// ", or set train.moments to fewer bits, or train.offload = "disk"": what of it is left to do.
std::string smaller_state(const recipe::Recipe::Train& train) {
  std::string advice;
  if (train.moments != recipe::Moments::int8) {
    advice += ", or set train.moments to fewer bits";
  }
  if (train.offload != recipe::Offload::disk && train.optimizer != recipe::OptimizerKind::muon) {
    advice += ", or set train.offload = \"disk\"";
  }
  return advice;
}

}  // namespace

std::int64_t gpu_memory_needed(const Plan& plan, std::size_t host, std::size_t gpu) {
  std::int64_t needed = 0;
  for (const Plan::Process& process : plan.processes) {
    if (process.host_index != host || plan.gpu_of(process) != gpu) continue;
    needed += Plan::compute_bytes(process) + kGpuContextBytes;
  }
  return needed;
}

bool fits_gpu_memory(const Plan& plan, std::size_t host) {
  const auto& gpus = plan.hosts.at(host).gpus;
  for (std::size_t gpu = 0; gpus && gpu < gpus->size(); ++gpu) {
    const std::int64_t there = (*gpus)[gpu];
    // 0: the driver did not say, and a run must not fail for that.
    if (there > 0 && gpu_memory_needed(plan, host, gpu) > there) return false;
  }
  return true;
}

void check_gpu_memory(const Plan& plan, std::size_t host) {
  if (fits_gpu_memory(plan, host)) return;
  const auto& gpus = plan.hosts.at(host).gpus;
  for (std::size_t gpu = 0; gpu < gpus->size(); ++gpu) {
    const std::int64_t there = (*gpus)[gpu];
    const std::int64_t needed = gpu_memory_needed(plan, host, gpu);
    if (there == 0 || needed <= there) continue;
    std::vector<std::string> stages;
    for (const Plan::Process& process : plan.processes) {
      if (process.host_index != host || plan.gpu_of(process) != gpu) continue;
      stages.push_back(fmt::format("{}: {:.1f} GiB", process.name.describe(),
                                   gibibytes(Plan::compute_bytes(process))));
    }
    throw base::UserError(base::ExitCode::out_of_memory,
                          "GPU {} of host {} has {:.1f} GiB, but by the plan it has to hold {:.1f} "
                          "GiB ({}, and {:.1f} GiB of CUDA's own for each); give the host fewer "
                          "stages or layers, or make train.micro_batch smaller",
                          gpu, plan.hosts[host].name, gibibytes(there), gibibytes(needed),
                          fmt::join(stages, ", "), gibibytes(kGpuContextBytes));
  }
}

std::int64_t host_memory_needed(const Plan& plan, std::size_t host) {
  std::int64_t needed = 0;
  for (const Plan::Process& process : plan.processes) {
    if (process.host_index != host) continue;
    needed += plan.host_bytes(process);
    // What a stage computes with on a GPU is in the GPU's memory.
    if (!plan.gpu_of(process)) needed += Plan::compute_bytes(process);
  }
  return needed;
}

void check_threads(const Plan& plan, std::size_t host) {
  const std::string objection = thread_objection(plan, host);
  if (objection.empty()) return;
  const std::int64_t cores = plan.hosts.at(host).cores;
  throw base::UserError(base::ExitCode::bad_input,
                        "{}; set it to {}{}, or to \"auto\", which divides the cores of each host "
                        "among its processes",
                        objection, cores, cores == 1 ? "" : " or fewer");
}

std::string thread_warning(const Plan& plan, std::size_t host) {
  const std::string objection = thread_objection(plan, host);
  if (objection.empty()) return "";
  return fmt::format(
      "{}; the run keeps its threads for equal bits, and computes slower there than with {}: to "
      "change that, resume with --set pipeline.threads={}",
      objection, plan.hosts.at(host).cores, plan.hosts.at(host).cores);
}

void check_host_memory(const Plan& plan) {
  const std::vector<recipe::RecipeHost> hosts = hosts_of(plan.recipe);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::int64_t held = held_bytes(plan, i);
    std::int64_t offloaded = 0;
    for (const Plan::Process& process : plan.processes) {
      if (process.host_index == i) offloaded += process.offloaded_bytes + process.waiting_bytes;
    }
    if (!hosts[i].memory) continue;
    const std::int64_t needed = held + host_memory_needed(plan, i);
    if (needed <= *hosts[i].memory) continue;
    const std::string start =
        fmt::format("host {} may use {}, but by the plan it needs {}", hosts[i].name,
                    base::byte_text(*hosts[i].memory), base::byte_text(needed));
    if (held == 0) {
      const std::string part = offloaded == 0 ? ""
                                              : fmt::format(", {} of it for what is off-loaded",
                                                            base::byte_text(offloaded));
      throw base::UserError(base::ExitCode::out_of_memory, "{}{}; give it fewer layers{}", start,
                            part, smaller_state(plan.recipe.train));
    }
    throw base::UserError(base::ExitCode::out_of_memory,
                          "{}, {} of it for checkpoints in memory (its own and those of the host "
                          "before it, two of each); leave out checkpoint.memory_every, or give it "
                          "fewer layers",
                          start, base::byte_text(held));
  }
}

void check_ports(const Plan& plan) {
  const auto [first, last] = plan.recipe.hosts.ports;
  if (first == 0) return;
  const std::vector<std::int64_t> needed = link_ports(plan);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] <= last - first + 1) continue;
    throw base::UserError(base::ExitCode::bad_input,
                          "hosts.ports is {}-{}, {} in all, but host {} needs {} for the links to "
                          "its processes; give it more",
                          first, last, last - first + 1, plan.hosts[i].name, needed[i]);
  }
}

}  // namespace strait::plan
