#include "launcher/hosts/agent_starter.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/hosts/ssh_session.h"

namespace strait::hosts {
namespace {

std::shared_ptr<LoginProgress> progress_from_now() {
  return std::make_shared<LoginProgress>(std::chrono::steady_clock::now().time_since_epoch());
}

std::unique_ptr<AgentStarter> ssh_call(const recipe::Recipe::Hosts& hosts, std::size_t host,
                                       std::shared_ptr<LoginProgress> progress,
                                       std::function<void()> check) {
  return std::make_unique<SshSession>(SshTarget{hosts.list.at(host).name, hosts.ssh_config,
                                                hosts.address, std::move(progress),
                                                std::move(check)});
}

std::vector<std::unique_ptr<AgentStarter>> ssh_starters(const recipe::Recipe::Hosts& hosts,
                                                        const std::set<std::size_t>& left_out) {
  std::vector<std::unique_ptr<AgentStarter>> starters;
  const auto progress = hosts.list.size() > 1 ? progress_from_now() : nullptr;
  for (std::size_t i = 0; i < hosts.list.size(); ++i) {
    starters.push_back(left_out.contains(i) ? nullptr : ssh_call(hosts, i, progress, {}));
  }
  return starters;
}

}  // namespace

std::vector<std::exception_ptr> for_each_host(std::size_t count,
                                              const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  std::vector<std::jthread> threads;
  for (std::size_t host = 0; host < count; ++host) {
    threads.emplace_back([&errors, &work, host] {
      try {
        work(host);
      } catch (...) {
        errors[host] = std::current_exception();  // the caller rethrows it
      }
    });
  }
  threads.clear();
  return errors;
}

std::vector<std::unique_ptr<AgentStarter>> make_agent_starters(
    const plan::Plan& plan, const std::filesystem::path& run,
    const std::set<std::size_t>& left_out) {
  switch (plan.recipe.hosts.backend) {
    case recipe::BackendKind::ssh:
      return ssh_starters(plan.recipe.hosts, left_out);
    case recipe::BackendKind::slurm:
      return slurm_starters(plan, run);
    case recipe::BackendKind::join:
      return join_starters(plan, run);
    case recipe::BackendKind::local:
      break;
  }
  throw std::logic_error("a local run calls no hosts");
}

std::unique_ptr<AgentStarter> agent_starter_in_run(const plan::Plan& plan, std::size_t host,
                                                   std::function<void()> check) {
  const recipe::Recipe::Hosts& settings = plan.recipe.hosts;
  if (settings.backend == recipe::BackendKind::ssh)
    return ssh_call(settings, host, progress_from_now(), std::move(check));
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format(
          "host {} is lost, and {}; stop the run, then strait resume starts all hosts again",
          plan.hosts.at(host).name,
          settings.backend == recipe::BackendKind::slurm
              ? "the nodes of a Slurm job are taken into a run when it starts"
              : "hosts join by a token only when a run starts"));
}

}  // namespace strait::hosts
