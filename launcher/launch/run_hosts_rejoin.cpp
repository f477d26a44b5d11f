#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/launch/amended_plan.h"
#include "launcher/launch/run_hosts.h"

namespace strait::launch {

// Hosts of a replica that rejoins.

std::vector<control::Event> RunHosts::rejoin_hosts(const plan::RunFile& run, std::uint32_t replica,
                                                   store::Step saved,
                                                   const std::function<void()>& check) {
  if (!agents_) return {};
  starting_up_ = false;
  std::set<std::size_t> hosts;
  for (const plan::Plan::Process& process : run.plan.processes) {
    if (process.name.replica == replica) hosts.insert(process.host_index);
  }
  std::vector<std::size_t> restarted;
  try {
    for (const std::size_t host : hosts) {
      if (agents_->responds(host)) continue;
      restart_agent(run, host, check);
      restarted.push_back(host);
    }
    return prepare_restarted(run, replica, saved, restarted, check);
  } catch (const std::exception& error) {
    // Another attempt has to begin with the agent again: it lacks files and routes.
    for (const std::size_t host : restarted) {
      agents_->mark_lost(host, error.what());
      starters_[host].reset();
    }
    throw;
  }
}

std::vector<control::Event> RunHosts::prepare_restarted(const plan::RunFile& run,
                                                        std::uint32_t replica, store::Step saved,
                                                        const std::vector<std::size_t>& restarted,
                                                        const std::function<void()>& check) {
  // Hosts with agents that stayed have their files and their ends of relayed links already.
  if (restarted.empty()) return {};
  if (transfer_) {
    const auto poll = [&] {
      check();
      for (const std::size_t host : restarted) {
        if (!lost(host)) continue;
        throw base::UserError(base::ExitCode::peer_lost,
                              fmt::format("host {} was lost again", run.plan.hosts[host].name));
      }
    };
    transfer_->rewind(restarted, saved, poll);
    // Another replica sends what is trained, but not what is frozen.
    const bool weights = run.plan.recipe.model.lora.has_value();
    RunTransfer::Needs needs{restarted, plan::plugin_copies(run.plan.recipe.plugins), "", weights};
    needs.begins = false;
    transfer_->deliver_inputs(run.plan, needs, poll, [](const control::Event&) {});
  }
  check();
  return reach_->route_links(
      run.plan, facts_, listeners_.addresses(), [&](const plan::Plan::Link& link) {
        if (link.listens.replica != replica && link.connects.replica != replica) return false;
        return !lost(run.plan.process(link.listens).host_index) &&
               !lost(run.plan.process(link.connects).host_index);
      });
}

void RunHosts::restart_agent(const plan::RunFile& run, std::size_t host,
                             const std::function<void()>& check) {
  starters_[host].reset();  // what is known of a failed one would count for all later attempts
  std::unique_ptr<hosts::AgentStarter> starter = hosts::agent_starter_in_run(run.plan, host, check);
  const auto deadline = std::chrono::steady_clock::now() + kCallLimit;
  // New listeners and keys before the job, as in bring_up().
  listeners_.listen_again(host, starter->launcher_address(deadline), run.plan.recipe.hosts.ports);
  AgentListeners::Links links = listeners_.expect_agent(run.plan, host);
  agents_->replace(host, std::move(links.agent));
  reach_->hosts().replace(host, std::move(links.reach), listeners_.agent_key(host));
  try {
    starter->start_agent(listeners_.job_for(run, host), deadline);
    const auto poll = [&starter, &check] {
      check();
      const std::string why = starter->failure();
      if (!why.empty()) throw base::UserError(base::ExitCode::peer_lost, why);
    };
    facts_[host] = agents_
                       ->wait_for_facts(
                           {host}, std::chrono::steady_clock::now() + kFactsLimit,
                           [&](const auto& missing) {
                             return hosts::late_hosts_text(run.plan.recipe.hosts, missing);
                           },
                           poll)
                       .front();
    starter->disconnect();
    check_memory(run.plan, host, facts_[host]);
  } catch (const base::UserError& error) {
    agents_->mark_lost(host, error.what());
    throw;
  }
  starters_[host] = std::move(starter);
  run_directories_[host] =
      hosts::host_run_directory(facts_[host].directory, run.plan.recipe.name, run.run).string();
  if (transfer_) {
    transfer_->add_host(host, run_directories_[host],
                        listeners_.expect_transfer_agent(run.plan, host),
                        listeners_.agent_key(host));
  }
}

}  // namespace strait::launch
