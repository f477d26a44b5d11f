#include "launcher/host/call_hosts.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "launcher/host/ssh_call.h"
#include "launcher/join/join_call.h"
#include "launcher/slurm/slurm_step.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

std::shared_ptr<CallProgress> progress_from_now() {
  return std::make_shared<CallProgress>(std::chrono::steady_clock::now().time_since_epoch());
}

std::unique_ptr<HostCall> ssh_call(const Recipe::Hosts& hosts, std::size_t host,
                                   std::shared_ptr<CallProgress> progress) {
  return std::make_unique<SshCall>(
      SshTarget{hosts.list.at(host).name, hosts.ssh_config, hosts.address, std::move(progress)});
}

std::vector<std::unique_ptr<HostCall>> ssh_calls(const Recipe::Hosts& hosts,
                                                 const std::set<std::size_t>& left_out) {
  std::vector<std::unique_ptr<HostCall>> calls;
  const auto progress = hosts.list.size() > 1 ? progress_from_now() : nullptr;
  for (std::size_t i = 0; i < hosts.list.size(); ++i) {
    calls.push_back(left_out.contains(i) ? nullptr : ssh_call(hosts, i, progress));
  }
  return calls;
}

}  // namespace

std::vector<std::unique_ptr<HostCall>> call_hosts(const Plan& plan,
                                                  const std::filesystem::path& run,
                                                  const std::set<std::size_t>& left_out) {
  switch (plan.recipe.hosts.backend) {
    case BackendKind::ssh:
      return ssh_calls(plan.recipe.hosts, left_out);
    case BackendKind::slurm:
      return slurm_calls(plan, run);
    case BackendKind::join:
      return join_calls(plan, run);
    case BackendKind::local:
      break;
  }
  throw UserError(ExitCode::internal, "a local run calls no hosts");
}

// The others train meanwhile, so nobody waits for long.
std::unique_ptr<HostCall> call_in_run(const Plan& plan, std::size_t host) {
  const Recipe::Hosts& settings = plan.recipe.hosts;
  if (settings.backend == BackendKind::ssh) return ssh_call(settings, host, progress_from_now());
  throw UserError(
      ExitCode::bad_input,
      fmt::format("host {} is lost, and {}; stop the run, and strait resume brings all back",
                  plan.hosts.at(host).name,
                  settings.backend == BackendKind::slurm
                      ? "the nodes of a Slurm job are taken into a run when it starts"
                      : "hosts that join by a token are let in when a run starts"));
}

}  // namespace strait::launcher
