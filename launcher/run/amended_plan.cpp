#include "launcher/run/amended_plan.h"

#include "launcher/base/machine.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/recipe/run_files.h"

namespace strait::run {
namespace {

// The memory that stages may use; 0: not known.
std::int64_t memory_of(const plan::Plan& plan, std::size_t host, const hosts::HostFacts& facts) {
  const std::int64_t stated = plan::hosts_of(plan.recipe)[host].memory.value_or(facts.memory);
  return facts.memory == 0 ? stated : std::min(facts.memory, stated);
}

// Where the recipe gives no number of threads.
void divide_cores(plan::Plan& plan, std::size_t host) {
  if (plan.recipe.pipeline.threads) return;
  const auto count = std::ranges::count(plan.processes, host, &plan::Plan::Process::host_index);
  for (plan::Plan::Process& process : plan.processes) {
    if (process.host_index != host) continue;
    process.threads = std::max<std::int64_t>(1, plan.hosts[host].cores / count);
  }
}

}  // namespace

std::vector<Event> amend_by_facts(plan::Plan& plan, const std::vector<hosts::HostFacts>& facts,
                                  const std::vector<std::size_t>& there) {
  std::vector<Event> notes;
  const std::int64_t now = base::unix_seconds();
  for (const std::size_t i : there) {
    plan::Plan::Host& host = plan.hosts[i];
    host.cores = facts[i].cores;
    host.processor = facts[i].processor;
    host.memory = memory_of(plan, i, facts[i]);
    host.gpus = facts[i].gpus;
    // No stage will use them, so their memory is no limit.
    if (plan.recipe.model.device == recipe::Device::cpu) host.gpus->clear();
    std::string warning = hosts::clock_warning(host.name, facts[i].clock, now);
    if (!warning.empty()) notes.push_back({"clock", std::move(warning)});
    check_memory(plan, i, facts[i]);
  }
  if (plan.recipe.pipeline.threads) return notes;
  std::map<std::uint32_t, std::int64_t> threads;  // by stage
  for (const std::size_t i : there) {
    divide_cores(plan, i);
    for (const plan::Plan::Process& process : plan.processes) {
      if (process.host_index == i) threads.emplace(process.name.stage, process.threads);
    }
  }
  for (plan::Plan::Process& process : plan.processes) {
    if (std::ranges::count(there, process.host_index) > 0) continue;
    // A replica that is absent gets the threads of the others: bits depend on the number of
    // threads.
    process.threads = threads.at(process.name.stage);
  }
  return notes;
}

void check_memory(const plan::Plan& plan, std::size_t host, const hosts::HostFacts& facts) {
  const std::int64_t memory = memory_of(plan, host, facts);
  plan::check_gpu_memory(plan, host);
  const std::int64_t held = plan::held_bytes(plan, host);
  const std::int64_t needed = held + plan::host_memory_needed(plan, host);
  if (memory == 0 || needed <= memory) return;
  throw base::UserError(
      base::ExitCode::out_of_memory,
      "host {} may use {}, but by the plan its stages need {}; give it fewer stages or layers, or "
      "make train.micro_batch, codec.cache or checkpoint.memory smaller{}",
      plan.hosts[host].name, base::byte_text(memory), base::byte_text(needed),
      held == 0 ? ""
                : fmt::format("; {} of it are checkpoints in memory (checkpoint.memory_every)",
                              base::byte_text(held)));
}

void amend_by_this_machine(plan::Plan& plan) {
  hosts::HostFacts facts;
  facts.cores = base::usable_cores();
  facts.memory = base::host_memory().total;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    plan.hosts[i].cores = facts.cores;
    divide_cores(plan, i);
    check_memory(plan, i, facts);
  }
}

}  // namespace strait::run
