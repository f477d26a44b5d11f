#include "launcher/hosts/agent_starter.h"

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
    const plan::Plan& plan, const std::filesystem::path& run, Rendezvous* rendezvous,
    const std::set<std::size_t>& left_out) {
  if (rendezvous == nullptr) return ssh_starters(plan.recipe.hosts, left_out);
  std::vector<std::unique_ptr<AgentStarter>> starters(plan.hosts.size());
  for (std::size_t i = 0; i < starters.size(); ++i) {
    if (!left_out.contains(i)) starters[i] = join_starter(*rendezvous, plan.hosts[i].name, run);
  }
  return starters;
}

std::unique_ptr<AgentStarter> agent_starter_in_run(const plan::Plan& plan, std::size_t host,
                                                   const std::filesystem::path& run,
                                                   Rendezvous* rendezvous,
                                                   std::function<void()> check) {
  if (rendezvous != nullptr) return join_starter(*rendezvous, plan.hosts.at(host).name, run);
  return ssh_call(plan.recipe.hosts, host, progress_from_now(), std::move(check));
}

}  // namespace strait::hosts
