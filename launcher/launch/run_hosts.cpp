#include "launcher/launch/run_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "launcher/base/build_id.h"
#include "launcher/hosts/agent_starters.h"
#include "launcher/hosts/agent_paths.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/plan/placement.h"
#include "launcher/process/local_backend.h"
#include "launcher/reach/path_probe.h"
#include "launcher/plan/absent_replicas.h"
#include "launcher/launch/amended_plan.h"
#include "launcher/transfer/transfer_peers.h"
#include "launcher/base/errors.h"

namespace strait::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kLoopback = "127.0.0.1";
constexpr auto kCallLimit = std::chrono::seconds(30);
constexpr auto kMeetLimit = std::chrono::seconds(20);

// For all of them at the same time. What is wrong with several is said together, with what can be
// done about it.
void for_each_host(const std::vector<std::size_t>& hosts,
                   const std::function<void(std::size_t)>& work,
                   const std::function<std::string(const std::vector<std::size_t>&)>& advice) {
  std::vector<std::exception_ptr> errors(hosts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        work(hosts[i]);
      } catch (...) {
        errors[i] = std::current_exception();  // told to the caller below
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
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

net::BindAddress bind_at(const std::string& address, const std::pair<int, int>& ports) {
  net::BindAddress bind;
  bind.host = address;
  bind.first_port = static_cast<std::uint16_t>(ports.first);
  bind.last_port = static_cast<std::uint16_t>(ports.second);
  return bind;
}

// From their jobs to their hello.
std::chrono::seconds meet_limit(const recipe::Recipe::Hosts& hosts) {
  if (hosts.backend == recipe::BackendKind::join) return std::chrono::seconds(hosts.join_wait);
  // All nodes load the program from one file system, at the same moment.
  return hosts.backend == recipe::BackendKind::slurm ? 6 * kMeetLimit : kMeetLimit;
}

}  // namespace

RunHosts::RunHosts(net::Node& node, plan::RunFile& run, const control::RunDirectory& directory,
                   const ModelQuestions& model, const std::atomic<int>& stops,
                   const std::set<std::uint32_t>& without)
    : node_(node), model_(model) {
  if (run.plan.recipe.hosts.backend != recipe::BackendKind::local) {
    std::set<std::size_t> left_out;
    // The other backends know no way to a host later.
    if (run.plan.recipe.hosts.backend == recipe::BackendKind::ssh) {
      left_out = plan::hosts_only_of(run.plan, without);
    }
    for (std::size_t host = 0; host < run.plan.hosts.size(); ++host) {
      if (!left_out.contains(host)) there_.push_back(host);
    }
    calls_ = hosts::call_hosts(run.plan, directory.path(), left_out);
    bring_up(run, directory, stops, without);
    return;
  }
  local_ = std::make_unique<process::LocalBackend>();
  doors_.push_back({kLoopback, node_.listen({}), nullptr, nullptr, nullptr});
  routes_ = reach::choose_routes(run.plan, {});
  door_of_.assign(run.plan.hosts.size(), 0);
  run_directories_ = {fs::absolute(directory.path()).string()};
}

RunHosts::~RunHosts() = default;

void RunHosts::bring_up(plan::RunFile& run, const control::RunDirectory& directory, const std::atomic<int>& stops,
                        const std::set<std::uint32_t>& without) {
  const std::size_t hosts = run.plan.hosts.size();
  const auto advice = [&](const std::vector<std::size_t>& failed) {
    return plan::advice_to_start_without(run.plan, without, failed);
  };
  std::vector<std::string> addresses(hosts);
  const auto deadline = Clock::now() + kCallLimit;
  for_each_host(
      there_, [&](std::size_t i) { addresses[i] = calls_[i]->launcher_address(deadline); }, advice);
  phase_ended("called");

  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  std::vector<hosts::HostAgents::Keeper> keepers;
  std::vector<reach::ReachClient::Host> reached;
  for (std::size_t i = 0; i < hosts; ++i) {
    keys_.push_back(net::CurveKeyPair::generate());
    keepers.push_back({run.plan.hosts[i].name, nullptr});
    reached.push_back({run.plan.hosts[i].name, nullptr});
  }
  door_of_.resize(hosts);
  for (const std::size_t i : there_) {
    door_of_[i] = door_at(addresses[i], settings);
    Ends ends = expect_keeper(run.plan, i);
    keepers[i].link = std::move(ends.keeper);
    reached[i].link = std::move(ends.reach);
  }
  const auto keep_log = [&directory](net::ProcessName process, const std::string& text) {
    std::ofstream(directory.log(process.text()), std::ios::binary | std::ios::app) << text;
  };
  agents_ = std::make_unique<hosts::HostAgents>(std::move(keepers), keep_log);
  for_each_host(
      there_, [&](std::size_t i) { calls_[i]->start_agent(job_for(run, i), deadline); }, advice);
  const std::vector<hosts::HostFacts> met = agents_->meet(there_, Clock::now() + meet_limit(settings),
                                                  [this, &stops] { check_calls(stops); });
  facts_.resize(hosts);
  run_directories_.resize(hosts);
  for (std::size_t i = 0; i < there_.size(); ++i) {
    calls_[there_[i]]->hang_up();
    facts_[there_[i]] = met[i];
    const bool shared = settings.backend == recipe::BackendKind::slurm;  // a file system, that is
    run_directories_[there_[i]] =
        shared ? fs::absolute(directory.path()).string()
               : hosts::host_run_directory(met[i].directory, run.plan.recipe.name, run.run).string();
  }
  phase_ended("met");
  const std::vector<control::Event> notes = amend_by_facts(run.plan, facts_, there_);
  notes_.insert(notes_.end(), notes.begin(), notes.end());
  if (settings.backend != recipe::BackendKind::slurm) begin_shipping(run);
  const auto look = [this, &stops] {
    if (coming_up_) return look_for_reasons_to_give_up(stops);
    check_calls(stops);  // who is lost is known, and the run goes on
  };
  const auto both_there = [&](const plan::Plan::Link& link) {
    return std::ranges::all_of(std::array{link.listens, link.connects}, [&](net::ProcessName end) {
      return !agents_->lost(run.plan.process(end).host_index);
    });
  };
  reach_ = std::make_unique<RunReach>(reach::ReachClient(std::move(reached), look), run.plan, facts_, addresses,
                                      both_there, model_);
  notes_.insert(notes_.end(), reach_->notes().begin(), reach_->notes().end());
  phase_ended("tried");
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

void RunHosts::begin_shipping(const plan::RunFile& run) {
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  transfer::TransferAgentOptions options;
  options.store = hosts::agent_directory(recipe::kHostDirectory) / "content";
  options.upload_bytes_per_second = transfer::bytes_per_second(settings.ship_megabits.value_or(0));
  auto transfer_agent = std::make_unique<transfer::TransferAgent>(options);
  std::vector<RunTransfer::Host> hosts;
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(i));
    hosts.push_back({run.plan.hosts[i].name, name, run_directories_[i]});
  }
  ship_ = std::make_unique<RunTransfer>(std::move(hosts), std::move(transfer_agent), model_);
  for (const std::size_t i : there_) {
    ship_->add_host(i, run_directories_[i], expect_transfer_agent(run.plan, i));
  }
}

void RunHosts::look_for_reasons_to_give_up(const std::atomic<int>& stops) const {
  check_calls(stops);
  if (agents_) agents_->check();
}

void RunHosts::check_calls(const std::atomic<int>& stops) const {
  if (stops.load() > 0) {
    throw base::UserError(base::ExitCode::interrupted, "stopped while hosts were still coming up");
  }
  for (const auto& call : calls_) {
    if (call == nullptr) continue;
    if (const std::string why = call->failure(); !why.empty()) {
      throw base::UserError(base::ExitCode::peer_lost, why);
    }
  }
}

RunHosts::Door RunHosts::open_door(const std::string& address, const recipe::Recipe::Hosts& settings) {
  const net::BindAddress bind = bind_at(address, settings.ports);
  return {address, node_.listen(bind), node_.listen(bind), node_.listen(bind), node_.listen(bind)};
}

std::size_t RunHosts::door_at(const std::string& address, const recipe::Recipe::Hosts& settings) {
  const auto found = std::ranges::find(doors_, address, &Door::address);
  const auto place = static_cast<std::size_t>(found - doors_.begin());
  if (found == doors_.end()) doors_.push_back(open_door(address, settings));
  return place;
}

RunHosts::Ends RunHosts::expect_keeper(const plan::Plan& plan, std::size_t host) {
  const Door& door = doors_[door_of_[host]];
  const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(host));
  const auto link = [&](const char* service) {
    return hosts::service_link(service, name, name, keys_[host].public_key,
                        std::chrono::seconds(plan.recipe.hosts.hold));
  };
  return {door.keepers->expect(link(hosts::kAgentService)), door.reach->expect(link(hosts::kReachService))};
}

std::unique_ptr<net::Link> RunHosts::expect_transfer_agent(const plan::Plan& plan, std::size_t host) {
  const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(host));
  return doors_[door_of_[host]].ship->expect(
      transfer::transfer_link(net::ProcessName::coordinator(), name, name, keys_[host].public_key,
                std::chrono::seconds(plan.recipe.hosts.hold)));
}

hosts::AgentJob RunHosts::job_for(const plan::RunFile& run, std::size_t host) const {
  const recipe::RecipeHost listed = plan::hosts_of(run.plan.recipe)[host];
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  const Door& door = doors_[door_of_[host]];
  hosts::AgentJob job;
  job.run = run.run;
  job.run_name = run.plan.recipe.name;
  job.generation = node_.options().generation;
  job.host = static_cast<std::uint32_t>(host);
  job.host_name = run.plan.hosts[host].name;
  job.build = base::build_id();
  job.keys = keys_[host];
  job.launcher_key = node_.options().keys.public_key;
  job.endpoints = {{hosts::kAgentService, door.keepers->endpoint()},
                   {hosts::kReachService, door.reach->endpoint()},
                   {hosts::kTransferService, door.ship->endpoint()}};
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(i));
    job.agent_keys[name.text()] = keys_[i].public_key;
  }
  job.directory = listed.directory.empty() ? recipe::kHostDirectory : listed.directory;
  job.environment = listed.environment;
  job.address = listed.address;
  job.devices = listed.devices;
  job.ports = settings.ports;
  job.hold = settings.hold;
  job.up_megabits = listed.up_megabits ? listed.up_megabits : settings.ship_megabits;
  job.down_megabits = listed.down_megabits;
  return job;
}

net::Listener& RunHosts::listener(std::size_t host) { return *doors_[door_of_.at(host)].control; }

process::Backend& RunHosts::backend() { return agents_ ? static_cast<process::Backend&>(*agents_) : *local_; }

void RunHosts::settle(plan::StageJob& job, std::size_t host) const {
  job.coordinator_endpoint = doors_[door_of_.at(host)].control->endpoint();
  job.run_directory = run_directories_.at(host);
  if (ship_) ship_->set_input_paths(job, host);
  for (const reach::LinkRoute& route : routes()) {
    if (route.binds == job.process && !route.address.empty()) job.binds[route.link] = route.address;
  }
}

std::map<std::string, std::string> RunHosts::meet(std::map<std::string, std::string> endpoints) {
  return reach_ ? reach_->meet(std::move(endpoints)) : std::move(endpoints);
}

std::vector<std::vector<std::string>> RunHosts::addresses(const recipe::Recipe& recipe) const {
  return reach::candidate_addresses(plan::hosts_of(recipe), facts_);
}

void RunHosts::be_patient() {
  if (agents_) agents_->be_patient();
}

}  // namespace strait::launch
