#include "launcher/run/run_hosts.h"

#include <fmt/ranges.h>

#include <fstream>

#include "framework/net/simulated_path.h"
#include "launcher/base/generation_lock.h"
#include "launcher/run/amended_plan.h"
#include "launcher/run/restart_policy.h"

namespace strait::run {
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
  throw base::UserError(code, "{}{}", fmt::join(sentences, "\n"), advice(failed));
}

// The failure names the host.
template <class Reply>
transfer::FileReply file_reply(const std::string& host,
                               const std::variant<base::Failure, Reply>& reply) {
  if (const auto* done = std::get_if<Reply>(&reply)) return *done;
  const auto& failed = std::get<base::Failure>(reply);
  return base::Failure{failed.code, fmt::format("host {}: {}", host, failed.text)};
}

// From the agents' jobs to their first message.
std::chrono::seconds facts_limit(const recipe::Recipe::Hosts& hosts) {
  return hosts.backend == recipe::BackendKind::join ? std::chrono::seconds(hosts.join_wait)
                                                    : RunHosts::kFactsLimit;
}

}  // namespace

// Makes the links of a local run behave as the recipe's hosts.simulate says. One thread.
class SimulatedLinks {
 public:
  explicit SimulatedLinks(const recipe::Recipe& recipe)
      : conditions_(recipe.hosts.simulate),
        only_link_(recipe.hosts.simulate_link),
        seed_(static_cast<std::uint64_t>(recipe.seed)) {}

  // Endpoints by link, as the listening stages report them -> endpoints to connect to.
  std::map<std::string, std::string> redirect(std::map<std::string, std::string> endpoints) {
    if (!conditions_.any()) return endpoints;
    for (auto& [link, endpoint] : endpoints) {
      if (!only_link_.empty() && link != only_link_) continue;
      std::unique_ptr<net::SimulatedPath>& path = paths_[link];
      // A replica that rejoins has its paths already.
      if (path == nullptr) {
        constexpr std::uint64_t kApart = 1'000'000;  // more than connections of a path
        path = std::make_unique<net::SimulatedPath>(conditions_, seed_ + kApart * paths_.size());
      }
      path->forward_to(endpoint);
      endpoint = path->endpoint();
    }
    return endpoints;
  }

 private:
  net::PathConditions conditions_;
  std::string only_link_;  // empty: all
  std::uint64_t seed_;     // of the random events on the links
  std::map<std::string, std::unique_ptr<net::SimulatedPath>> paths_;  // by link
};

net::NodeOptions launcher_node(const net::RunId& run, std::uint32_t generation) {
  net::NodeOptions options;
  options.name = net::ProcessName::coordinator();
  options.run = run;
  options.generation = generation;
  options.keys = net::CurveKeyPair::generate();
  return options;
}

RunHosts::RunHosts(net::Node& node, plan::RunFile& run, const RunDirectory& directory,
                   const ModelQuestions& model, const std::atomic<int>& stops,
                   hosts::Rendezvous* rendezvous, const std::set<std::uint32_t>& without)
    : model_(model),
      rendezvous_(rendezvous),
      run_path_(directory.path()),
      listeners_(run.plan.recipe.hosts.backend == recipe::BackendKind::local
                     ? AgentListeners::loopback(node, run.plan.hosts.size())
                     : AgentListeners(node, run.plan.hosts.size())) {
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::local) {
    local_ = std::make_unique<base::LocalBackend>();
    routes_ = hosts::choose_routes(run.plan, {});
    simulated_links_ = std::make_unique<SimulatedLinks>(run.plan.recipe);
    run_directories_ = {fs::absolute(directory.path()).string()};
    for (const std::string& ended :
         base::end_former_processes(directory.path(), 0, node.options().generation)) {
      notes_.push_back({"ended_former", "ended " + ended});
    }
    return;
  }
  const std::set<std::size_t> skipped = hosts_only_of(run.plan, without);
  for (std::size_t host = 0; host < run.plan.hosts.size(); ++host) {
    if (!skipped.contains(host)) hosts_with_agents_.push_back(host);
  }
  starters_ = hosts::make_agent_starters(run.plan, run_path_, rendezvous_, skipped);
  bring_up(run, directory, stops, without);
}

RunHosts::~RunHosts() = default;

void RunHosts::bring_up(plan::RunFile& run, const RunDirectory& directory,
                        const std::atomic<int>& stops, const std::set<std::uint32_t>& without) {
  const std::size_t hosts = run.plan.hosts.size();
  const auto advice = [&](const std::vector<std::size_t>& failed) {
    return advice_to_start_without(run.plan, without, {failed.begin(), failed.end()});
  };
  std::vector<std::string> addresses(hosts);
  const auto deadline = Clock::now() + kCallLimit;
  work_on_hosts(
      hosts_with_agents_,
      [&](std::size_t i) { addresses[i] = starters_[i]->launcher_address(deadline); }, advice);
  phase_ended("connected");

  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  std::vector<hosts::HostAgents::Agent> agents;
  for (std::size_t i = 0; i < hosts; ++i) {
    agents.push_back({run.plan.hosts[i].name, nullptr, listeners_.agent_key(i)});
  }
  // Listeners and links first: an agent connects as soon as it has its job.
  for (const std::size_t i : hosts_with_agents_) {
    listeners_.listen(i, addresses[i], settings.ports);
    agents[i].link = listeners_.expect_agent(run.plan, i);
  }
  const auto keep_log = [&directory](net::ProcessName process, const std::string& text) {
    std::ofstream(directory.log(process.text()), std::ios::binary | std::ios::app) << text;
  };
  const auto poll = [this, &stops] {
    if (starting_up_) return check_startup(stops);
    check_starters(stops);  // the run goes on without lost hosts
  };
  agents_ = std::make_unique<hosts::HostAgents>(std::move(agents), keep_log, poll);
  work_on_hosts(
      hosts_with_agents_,
      [&](std::size_t i) { starters_[i]->start_agent(listeners_.job_for(run, i), deadline); },
      advice);
  record_facts(run,
               agents_->wait_for_facts(
                   hosts_with_agents_, Clock::now() + facts_limit(settings),
                   [&](const auto& missing) { return hosts::late_hosts_text(settings, missing); },
                   [this, &stops] { check_starters(stops); }));
  phase_ended("agents up");
  const std::vector<Event> notes = amend_by_facts(run.plan, facts_, hosts_with_agents_);
  notes_.insert(notes_.end(), notes.begin(), notes.end());
  model_.check_replica_devices(run.plan);
  start_transfer(run);
  const auto both_up = [&](const plan::Plan::Link& link) {
    return std::ranges::all_of(std::array{link.listens, link.connects}, [&](net::ProcessName end) {
      return !agents_->lost(run.plan.process(end).host_index);
    });
  };
  reach_ = std::make_unique<RunReach>(*agents_, run.plan, facts_, addresses, both_up, model_);
  notes_.insert(notes_.end(), reach_->notes().begin(), reach_->notes().end());
  phase_ended("paths probed");
}

void RunHosts::record_facts(const plan::RunFile& run, const std::vector<hosts::HostFacts>& facts) {
  facts_.resize(run.plan.hosts.size());
  run_directories_.resize(run.plan.hosts.size());
  for (std::size_t i = 0; i < hosts_with_agents_.size(); ++i) {
    starters_[hosts_with_agents_[i]]->disconnect();
    facts_[hosts_with_agents_[i]] = facts[i];
    run_directories_[hosts_with_agents_[i]] =
        hosts::host_run_directory(facts[i].directory, run.plan.recipe.name, run.run).string();
  }
}

void RunHosts::phase_ended(const std::string& name) {
  const auto now = Clock::now();
  phases_ += fmt::format("{}{} {:.2f} s", phases_.empty() ? "" : ", ", name,
                         std::chrono::duration<double>(now - phase_began_).count());
  phase_began_ = now;
}

Event RunHosts::phases() const {
  return {"hosts_up", agents_ ? fmt::format("hosts are up: {}", phases_) : ""};
}

void RunHosts::start_transfer(const plan::RunFile& run) {
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  transfer::TransferAgentOptions options;
  options.store = hosts::agent_directory(recipe::kHostDirectory) / "content";
  options.upload_bytes_per_second = transfer::bytes_per_second(settings.ship_megabits.value_or(0));
  options.ask = [this](const net::ProcessName& host, const transfer::FileRequest& request,
                       const transfer::OnFileReply& on_reply) {
    const std::size_t number = host.replica;  // see ProcessName::host_agent()
    std::visit(
        [&](const auto& one) {
          agents_->ask(number, one, [name = agents_->name(number), on_reply](const auto& reply) {
            on_reply(file_reply(name, reply));
          });
        },
        request);
  };
  auto transfer_agent = std::make_unique<transfer::TransferAgent>(options);
  std::vector<RunTransfer::Host> hosts;
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const auto name = net::ProcessName::host_agent(static_cast<std::uint32_t>(i));
    hosts.push_back(
        {run.plan.hosts[i].name, name, run_directories_[i], plan::memory_directory(run.run, i)});
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

base::Backend& RunHosts::backend() {
  return agents_ ? static_cast<base::Backend&>(*agents_) : *local_;
}

void RunHosts::fill_in(plan::StageJob& job, std::size_t host) const {
  job.coordinator_endpoint = listeners_.at(host).endpoint();
  job.run_directory = run_directories_.at(host);
  if (transfer_) transfer_->set_input_paths(job, host);
  for (const hosts::LinkRoute& route : routes()) {
    if (route.binds == job.process && !route.address.empty()) job.binds[route.link] = route.address;
  }
}

std::map<std::string, std::string> RunHosts::connect_endpoints(
    std::map<std::string, std::string> endpoints) {
  if (reach_) return reach_->connect_endpoints(std::move(endpoints));
  return simulated_links_->redirect(std::move(endpoints));
}

std::vector<std::vector<std::string>> RunHosts::addresses(const recipe::Recipe& recipe) const {
  return hosts::candidate_addresses(plan::hosts_of(recipe), facts_);
}

void RunHosts::tolerate_outages() {
  if (agents_) agents_->tolerate_outages();
}

std::vector<Event> RunHosts::rejoin_hosts(const plan::RunFile& run, std::uint32_t replica,
                                          store::Step saved, const std::function<void()>& check) {
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
    // Another attempt must start these agents again: they lack files and routes.
    for (const std::size_t host : restarted) {
      agents_->mark_lost(host, error.what());
      starters_[host].reset();
    }
    throw;
  }
}

std::vector<Event> RunHosts::prepare_restarted(const plan::RunFile& run, std::uint32_t replica,
                                               store::Step saved,
                                               const std::vector<std::size_t>& restarted,
                                               const std::function<void()>& check) {
  // Hosts whose agents did not end still have their files and their ends of relayed links.
  if (restarted.empty()) return {};
  if (transfer_) {
    const auto poll = [&] {
      check();
      for (const std::size_t host : restarted) {
        if (!lost(host)) continue;
        throw base::UserError(base::ExitCode::peer_lost, "host {} was lost again",
                              run.plan.hosts[host].name);
      }
    };
    transfer_->rewind(restarted, saved, poll);
    // Another replica sends trained weights, but not frozen ones.
    const bool weights = run.plan.recipe.model.lora.has_value();
    RunTransfer::Needs needs{restarted, plan::plugin_copies(run.plan.recipe.plugins), "", weights};
    needs.begins = false;
    transfer_->deliver_inputs(run.plan, needs, poll, [](const Event&) {});
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
  starters_[host].reset();  // its failure would end all later attempts
  std::unique_ptr<hosts::AgentStarter> starter =
      hosts::agent_starter_in_run(run.plan, host, run_path_, rendezvous_, check);
  const auto deadline = Clock::now() + kCallLimit;
  // New listeners and keys before the job, as in bring_up().
  listeners_.listen_again(host, starter->launcher_address(deadline), run.plan.recipe.hosts.ports);
  agents_->replace(host, listeners_.expect_agent(run.plan, host), listeners_.agent_key(host));
  try {
    starter->start_agent(listeners_.job_for(run, host), deadline);
    const auto poll = [&starter, &check] {
      check();
      const std::string why = starter->failure();
      if (!why.empty()) throw base::UserError(base::ExitCode::peer_lost, why);
    };
    facts_[host] = agents_
                       ->wait_for_facts(
                           {host}, Clock::now() + kFactsLimit,
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

}  // namespace strait::run
