#include "launcher/plan/absent_replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/base/errors.h"

namespace strait::plan {

void check_can_start_without(const Plan& plan, const std::vector<std::uint32_t>& replicas) {
  if (replicas.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the run cannot start without replica {}: {}", fmt::join(replicas, ", "), why));
  };
  const std::int64_t all = plan.recipe.pipeline.replicas;
  if (std::ranges::max(replicas) >= all) {
    refuse(fmt::format("its replicas are 0 to {}", all - 1));
  }
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop) {
    refuse(
        "sync.on_loss is \"stop\", so all replicas have to be present from the start; add --set "
        "sync.on_loss=continue, or train fewer pipeline.replicas");
  }
  if (plan.recipe.hosts.backend == recipe::BackendKind::slurm) {
    refuse(
        "hosts.backend is \"slurm\", and a Slurm job starts when it has all of its nodes; train "
        "fewer pipeline.replicas");
  }
  const std::set<std::uint32_t> distinct(replicas.begin(), replicas.end());
  if (std::ssize(distinct) == all) refuse("at least one replica has to train");
}

std::set<std::size_t> hosts_only_of(const Plan& plan, const std::set<std::uint32_t>& replicas) {
  std::set<std::size_t> hosts;
  std::set<std::size_t> others;
  for (const Plan::Process& process : plan.processes) {
    (replicas.contains(process.name.replica) ? hosts : others).insert(process.host_index);
  }
  std::erase_if(hosts, [&](std::size_t host) { return others.contains(host); });
  return hosts;
}

std::set<std::uint32_t> replicas_to_leave_out(const Plan& plan,
                                              const std::set<std::uint32_t>& without,
                                              const std::set<std::size_t>& lost) {
  const bool possible = plan.recipe.sync.on_loss == recipe::LossRule::continue_run &&
                        plan.recipe.hosts.backend != recipe::BackendKind::slurm;
  if (!possible) return {};
  std::set<std::uint32_t> gone;
  for (const Plan::Process& process : plan.processes) {
    if (lost.contains(process.host_index)) gone.insert(process.name.replica);
  }
  std::set<std::uint32_t> all = without;
  all.insert(gone.begin(), gone.end());
  if (std::ssize(all) >= plan.recipe.pipeline.replicas) return {};
  return gone;
}

std::string advice_to_start_without(const Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::set<std::size_t>& lost) {
  std::set<std::uint32_t> missing = replicas_to_leave_out(plan, without, lost);
  if (missing.empty()) return "";
  missing.insert(without.begin(), without.end());
  std::string options;
  for (const std::uint32_t replica : missing) options += fmt::format(" --without {}", replica);
  return fmt::format("; to start without {} and add {} later:{}",
                     missing.size() == 1 ? "that replica" : "those replicas",
                     missing.size() == 1 ? "it" : "them", options);
}

}  // namespace strait::plan
