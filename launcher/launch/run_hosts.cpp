#include "launcher/launch/run_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/launch/amended_plan.h"
#include "launcher/plan/absent_replicas.h"
#include "launcher/plan/placement.h"
#include "launcher/process/backend.h"
#include "launcher/process/generation_lock.h"
#include "launcher/reach/path_probe.h"

namespace strait::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// hosts::for_each_host(). Errors of several hosts become one UserError, with advice about all of
// them.
void work_on_hosts(const std::vector<std::size_t>& hosts,
                   const std::function<void(std::size_t)>& work,
                   const std::function<std::string(const std::vector<std::size_t>&)>& advice) {
  const auto errors = hosts::for_each_host(hosts.size(), [&](std::size_t i) { work(hosts[i]); });
  std::vector<std::string> sentences;
  std::vector<std::size_t> failed;
  base::ExitCode code = base::ExitCode::done;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!errors[i]) continue;
    try {
      std::rethrow_exception(errors[i]);
    } catch (const base::UserError& known) {
      if (code == base::ExitCode::done) code = known.code();
      sentences.emplace_back(known.what());
      failed.push_back(hosts[i]);
    }
  }
  if (sentences.empty()) return;
  throw base::UserError(code, fmt::format("{}{}", fmt::join(sentences, "\n"), advice(failed)));
}

// From the agents' jobs to their first message.
std::chrono::seconds facts_limit(const recipe::Recipe::Hosts& hosts) {
  if (hosts.backend == recipe::BackendKind::join) return std::chrono::seconds(hosts.join_wait);
  // All nodes load the program from one file system at the same moment.
  return hosts.backend == recipe::BackendKind::slurm ? 6 * RunHosts::kFactsLimit
                                                     : RunHosts::kFactsLimit;
}

}  // namespace

net::NodeOptions launcher_node(const net::RunId& run, std::uint32_t generation) {
  net::NodeOptions options;
  options.name = net::ProcessName::coordinator();
  options.run = run;
  options.generation = generation;
  options.keys = net::CurveKeyPair::generate();
  return options;
}

RunHosts::RunHosts(net::Node& node, plan::RunFile& run, const control::RunDirectory& directory,
                   const ModelQuestions& model, const std::atomic<int>& stops,
                   const std::set<std::uint32_t>& without)
    : model_(model),
      listeners_(run.plan.recipe.hosts.backend == recipe::BackendKind::local
                     ? AgentListeners::loopback(node, run.plan.hosts.size())
                     : AgentListeners(node, run.plan.hosts.size())) {
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::local) {
    local_ = std::make_unique<process::LocalBackend>();
    routes_ = reach::choose_routes(run.plan, {});
    simulated_links_.emplace(run.plan.recipe);
    run_directories_ = {fs::absolute(directory.path()).string()};
    for (const std::string& ended :
         process::end_former_processes(directory.path(), 0, node.options().generation)) {
      notes_.push_back({"ended_former", "ended " + ended});
    }
    return;
  }
  std::set<std::size_t> skipped;
  // The other backends cannot start an agent later.
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::ssh) {
    skipped = plan::hosts_only_of(run.plan, without);
  }
  for (std::size_t host = 0; host < run.plan.hosts.size(); ++host) {
    if (!skipped.contains(host)) hosts_with_agents_.push_back(host);
  }
  starters_ = hosts::make_agent_starters(run.plan, directory.path(), skipped);
  bring_up(run, directory, stops, without);
}

RunHosts::~RunHosts() = default;

void RunHosts::bring_up(plan::RunFile& run, const control::RunDirectory& directory,
                        const std::atomic<int>& stops, const std::set<std::uint32_t>& without) {
  const std::size_t hosts = run.plan.hosts.size();
  const auto advice = [&](const std::vector<std::size_t>& failed) {
    return plan::advice_to_start_without(run.plan, without, {failed.begin(), failed.end()});
  };
  std::vector<std::string> addresses(hosts);
  const auto deadline = Clock::now() + kCallLimit;
  work_on_hosts(
      hosts_with_agents_,
      [&](std::size_t i) { addresses[i] = starters_[i]->launcher_address(deadline); }, advice);
  phase_ended("connected");

  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  std::vector<hosts::HostAgents::Agent> agents;
  std::vector<reach::ReachClient::Host> reached;
  for (std::size_t i = 0; i < hosts; ++i) {
    agents.push_back({run.plan.hosts[i].name, nullptr});
    reached.push_back({run.plan.hosts[i].name, nullptr, listeners_.agent_key(i)});
  }
  // Listeners and links first: an agent connects as soon as it has its job.
  for (const std::size_t i : hosts_with_agents_) {
    listeners_.listen(i, addresses[i], settings.ports);
    AgentListeners::Links links = listeners_.expect_agent(run.plan, i);
    agents[i].link = std::move(links.agent);
    reached[i].link = std::move(links.reach);
  }
  const auto keep_log = [&directory](net::ProcessName process, const std::string& text) {
    std::ofstream(directory.log(process.text()), std::ios::binary | std::ios::app) << text;
  };
  agents_ = std::make_unique<hosts::HostAgents>(std::move(agents), keep_log);
  work_on_hosts(
      hosts_with_agents_,
      [&](std::size_t i) { starters_[i]->start_agent(listeners_.job_for(run, i), deadline); },
      advice);
  record_facts(run, directory,
               agents_->wait_for_facts(
                   hosts_with_agents_, Clock::now() + facts_limit(settings),
                   [&](const auto& missing) { return hosts::late_hosts_text(settings, missing); },
                   [this, &stops] { check_starters(stops); }));
  phase_ended("agents up");
  const std::vector<control::Event> notes = amend_by_facts(run.plan, facts_, hosts_with_agents_);
  notes_.insert(notes_.end(), notes.begin(), notes.end());
  model_.check_replica_devices(run.plan);
  if (settings.backend != recipe::BackendKind::slurm) start_transfer(run);
  const auto poll = [this, &stops] {
    if (starting_up_) return check_startup(stops);
    check_starters(stops);  // the run goes on without lost hosts
  };
  const auto both_up = [&](const plan::Plan::Link& link) {
    return std::ranges::all_of(std::array{link.listens, link.connects}, [&](net::ProcessName end) {
      return !agents_->lost(run.plan.process(end).host_index);
    });
  };
  reach_ = std::make_unique<RunReach>(reach::ReachClient(std::move(reached), poll), run.plan,
                                      facts_, addresses, both_up, model_);
  notes_.insert(notes_.end(), reach_->notes().begin(), reach_->notes().end());
  phase_ended("paths probed");
}

void RunHosts::record_facts(const plan::RunFile& run, const control::RunDirectory& directory,
                            const std::vector<hosts::HostFacts>& facts) {
  // Nodes of a Slurm job share a file system.
  const bool shared = run.plan.recipe.hosts.backend == recipe::BackendKind::slurm;
  facts_.resize(run.plan.hosts.size());
  run_directories_.resize(run.plan.hosts.size());
  for (std::size_t i = 0; i < hosts_with_agents_.size(); ++i) {
    starters_[hosts_with_agents_[i]]->disconnect();
    facts_[hosts_with_agents_[i]] = facts[i];
    run_directories_[hosts_with_agents_[i]] =
        shared
            ? fs::absolute(directory.path()).string()
            : hosts::host_run_directory(facts[i].directory, run.plan.recipe.name, run.run).string();
  }
}

void RunHosts::phase_ended(const std::string& name) {
  const auto now = Clock::now();
  phases_ += fmt::format("{}{} {:.2f} s", phases_.empty() ? "" : ", ", name,
                         std::chrono::duration<double>(now - phase_began_).count());
  phase_began_ = now;
}

control::Event RunHosts::phases() const {
  return {"hosts_up", agents_ ? fmt::format("hosts are up: {}", phases_) : ""};
}

void RunHosts::start_transfer(const plan::RunFile& run) {
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  transfer::TransferAgentOptions options;
  options.store = hosts::agent_directory(recipe::kHostDirectory) / "content";
  options.upload_bytes_per_second = transfer::bytes_per_second(settings.ship_megabits.value_or(0));
  auto transfer_agent = std::make_unique<transfer::TransferAgent>(options);
  std::vector<RunTransfer::Host> hosts;
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const auto name = net::ProcessName::host_agent(static_cast<std::uint32_t>(i));
    hosts.push_back({run.plan.hosts[i].name, name, run_directories_[i]});
  }
  transfer_ = std::make_unique<RunTransfer>(std::move(hosts), std::move(transfer_agent), model_);
  for (const std::size_t i : hosts_with_agents_) {
    transfer_->add_host(i, run_directories_[i], listeners_.expect_transfer_agent(run.plan, i),
                        listeners_.agent_key(i));
  }
}

void RunHosts::check_startup(const std::atomic<int>& stops) const {
  check_starters(stops);
  if (agents_) agents_->check();
}

void RunHosts::check_starters(const std::atomic<int>& stops) const {
  if (stops.load() > 0) {
    throw base::UserError(base::ExitCode::interrupted, "stopped while hosts were still coming up");
  }
  for (const auto& starter : starters_) {
    if (starter == nullptr) continue;
    if (const std::string why = starter->failure(); !why.empty()) {
      throw base::UserError(base::ExitCode::peer_lost, why);
    }
  }
}

process::Backend& RunHosts::backend() {
  return agents_ ? static_cast<process::Backend&>(*agents_) : *local_;
}

void RunHosts::fill_in(plan::StageJob& job, std::size_t host) const {
  job.coordinator_endpoint = listeners_.control(host).endpoint();
  job.run_directory = run_directories_.at(host);
  if (transfer_) transfer_->set_input_paths(job, host);
  for (const reach::LinkRoute& route : routes()) {
    if (route.binds == job.process && !route.address.empty()) job.binds[route.link] = route.address;
  }
}

std::map<std::string, std::string> RunHosts::connect_endpoints(
    std::map<std::string, std::string> endpoints) {
  if (reach_) return reach_->connect_endpoints(std::move(endpoints));
  return simulated_links_->redirect(std::move(endpoints));
}

std::vector<std::vector<std::string>> RunHosts::addresses(const recipe::Recipe& recipe) const {
  return reach::candidate_addresses(plan::hosts_of(recipe), facts_);
}

void RunHosts::tolerate_outages() {
  if (agents_) agents_->tolerate_outages();
}

}  // namespace strait::launch
