#include "launcher/host/call_hosts.h"

#include <fmt/format.h>

#include "launcher/host/ssh_call.h"
#include "launcher/join/join_call.h"
#include "launcher/slurm/slurm_step.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

std::vector<std::unique_ptr<HostCall>> ssh_calls(const Recipe::Hosts& hosts) {
  std::vector<std::unique_ptr<HostCall>> calls;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto progress = hosts.list.size() > 1 ? std::make_shared<CallProgress>(now) : nullptr;
  for (const RecipeHost& host : hosts.list) {
    calls.push_back(
        std::make_unique<SshCall>(SshTarget{host.name, hosts.ssh_config, hosts.address, progress}));
  }
  return calls;
}

}  // namespace

std::vector<std::unique_ptr<HostCall>> call_hosts(const Plan& plan,
                                                  const std::filesystem::path& run) {
  switch (plan.recipe.hosts.backend) {
    case BackendKind::ssh:
      return ssh_calls(plan.recipe.hosts);
    case BackendKind::slurm:
      return slurm_calls(plan, run);
    case BackendKind::join:
      return join_calls(plan, run);
    case BackendKind::local:
      break;
  }
  throw UserError(ExitCode::internal, "a local run calls no hosts");
}

}  // namespace strait::launcher
