#include "launcher/cli/emit.h"

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_starter.h"

namespace strait::cli {
namespace {

std::string run_command(const EmitSource& source) {
  std::string command =
      base::shell_word(source.program.string()) + " run " + base::shell_word(source.recipe);
  for (const std::string& words : source.overrides) command += " --set " + base::shell_word(words);
  return command;
}

std::string join_command(const plan::Plan& plan, EmitSource source) {
  if (plan.recipe.hosts.list.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "hosts that join need names: give hosts.list, as in --set "
                          "'hosts.backend=\"join\"' --set 'hosts.list=[\"alpha\", \"beta\"]'");
  }
  if (plan.recipe.hosts.backend != recipe::BackendKind::join) {
    source.overrides.emplace_back("hosts.backend=\"join\"");
  }
  return run_command(source);
}

}  // namespace

std::string emit_commands(const plan::Plan& plan, const EmitSource& source) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const std::filesystem::path run = std::filesystem::path("runs") / plan.recipe.name;
  std::string text = fmt::format(
      "# First, where the hosts can reach it at {}, ports {}-{}. It writes a token for each host\n"
      "# and waits {} s for all of them:\n{}\n"
      "# Then on each host, with a copy of its own token (a secret, good as long as that command "
      "runs):\n",
      hosts.address.empty() ? "its address (or hosts.address)" : hosts.address, hosts.ports.first,
      hosts.ports.second, hosts.join_wait, join_command(plan, source));
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    text += fmt::format("# {}:\n{} join {}\n", plan.hosts[i].name,
                        base::shell_word(source.program.string()),
                        base::shell_word(hosts::token_file(run, i).string()));
  }
  return text;
}

}  // namespace strait::cli
