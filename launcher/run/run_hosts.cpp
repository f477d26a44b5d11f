#include "launcher/run/run_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "launcher/build_id.h"
#include "launcher/host/call_hosts.h"
#include "launcher/host/keeper.h"
#include "launcher/host/service_link.h"
#include "launcher/plan/placement.h"
#include "launcher/process/local_backend.h"
#include "launcher/reach/path_finder.h"
#include "launcher/ship/ship_link.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kLoopback = "127.0.0.1";
constexpr auto kCallLimit = std::chrono::seconds(30);
constexpr auto kMeetLimit = std::chrono::seconds(20);
constexpr std::int64_t kClockTolerance = 300;  // seconds

// For every host at the same time. What is wrong with several is said together.
void for_each_host(std::size_t hosts, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> errors(hosts);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < hosts; ++i) {
    threads.emplace_back([&, i] {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();  // told to the caller below
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> sentences;
  ExitCode code = ExitCode::done;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const UserError& known) {
      if (code == ExitCode::done) code = known.code();
      sentences.emplace_back(known.what());
    }
  }
  if (!sentences.empty()) throw UserError(code, fmt::format("{}", fmt::join(sentences, "\n")));
}

net::BindAddress bind_at(const std::string& address, const std::pair<int, int>& ports) {
  net::BindAddress bind;
  bind.host = address;
  bind.first_port = static_cast<std::uint16_t>(ports.first);
  bind.last_port = static_cast<std::uint16_t>(ports.second);
  return bind;
}

// From their jobs to their hello.
std::chrono::seconds meet_limit(const Recipe::Hosts& hosts) {
  if (hosts.backend == BackendKind::join) return std::chrono::seconds(hosts.join_wait);
  // All nodes load the program from one file system, at the same moment.
  return hosts.backend == BackendKind::slurm ? 6 * kMeetLimit : kMeetLimit;
}

std::int64_t count_on(const Plan& plan, std::size_t host) {
  return std::ranges::count(plan.processes, host, &Plan::Process::host_index);
}

}  // namespace

RunHosts::RunHosts(net::Node& node, RunFile& run, const RunDirectory& directory,
                   const std::atomic<int>& stops)
    : node_(node) {
  if (run.plan.recipe.hosts.backend != BackendKind::local) {
    bring_up(run, directory, stops);
    return;
  }
  local_ = std::make_unique<LocalBackend>();
  doors_.push_back({kLoopback, node_.listen({}), nullptr, nullptr, nullptr});
  routes_ = choose_routes(run.plan, {});
  door_of_.assign(run.plan.hosts.size(), 0);
  run_directories_ = {fs::absolute(directory.path()).string()};
}

RunHosts::~RunHosts() = default;

void RunHosts::bring_up(RunFile& run, const RunDirectory& directory,
                        const std::atomic<int>& stops) {
  const std::size_t hosts = run.plan.hosts.size();
  calls_ = call_hosts(run.plan, directory.path());
  std::vector<std::string> addresses(hosts);
  const auto deadline = Clock::now() + kCallLimit;
  for_each_host(hosts,
                [&](std::size_t i) { addresses[i] = calls_[i]->launcher_address(deadline); });
  phase_ended("called");

  const Recipe::Hosts& settings = run.plan.recipe.hosts;
  std::vector<Fleet::Keeper> keepers;
  std::vector<Reach::Host> reached;
  for (std::size_t i = 0; i < hosts; ++i) keys_.push_back(net::CurveKeyPair::generate());
  for (std::size_t i = 0; i < hosts; ++i) {
    Door& door = door_at(addresses[i], settings);
    door_of_.push_back(static_cast<std::size_t>(&door - doors_.data()));
    const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(i));
    keepers.push_back({run.plan.hosts[i].name, door.keepers->expect(service_link(
                                                   kKeeperService, name, name, keys_[i].public_key,
                                                   std::chrono::seconds(settings.hold)))});
    reached.push_back({run.plan.hosts[i].name, door.reach->expect(service_link(
                                                   kReachService, name, name, keys_[i].public_key,
                                                   std::chrono::seconds(settings.hold)))});
  }
  const auto keep_log = [&directory](net::ProcessName process, const std::string& text) {
    std::ofstream(directory.log(process.text()), std::ios::binary | std::ios::app) << text;
  };
  fleet_ = std::make_unique<Fleet>(std::move(keepers), keep_log);
  for_each_host(hosts, [&](std::size_t i) { calls_[i]->hand_over(job_for(run, i), deadline); });
  facts_ =
      fleet_->meet(Clock::now() + meet_limit(settings), [this, &stops] { check_calls(stops); });
  for (const auto& call : calls_) call->hang_up();
  phase_ended("met");
  for (const HostFacts& facts : facts_) {
    const bool shared = settings.backend == BackendKind::slurm;  // a file system, that is
    run_directories_.push_back(
        shared ? fs::absolute(directory.path())
               : host_run_directory(facts.directory, run.plan.recipe.name, run.run));
  }
  amend(run.plan);
  if (settings.backend != BackendKind::slurm) begin_shipping(run);
  const auto look = [this, &stops] { look_for_reasons_to_give_up(stops); };
  reach_ = std::make_unique<RunReach>(Reach(std::move(reached), look), run.plan, facts_, addresses);
  routes_ = reach_->routes();
  notes_.insert(notes_.end(), reach_->notes().begin(), reach_->notes().end());
  phase_ended("tried");
}

void RunHosts::phase_ended(const std::string& name) {
  const auto now = Clock::now();
  phases_ += fmt::format("{}{} {:.2f} s", phases_.empty() ? "" : ", ", name,
                         std::chrono::duration<double>(now - phase_began_).count());
  phase_began_ = now;
}

Event RunHosts::phases() const {
  return {"hosts_up", fleet_ ? fmt::format("hosts are up: {}", phases_) : ""};
}

void RunHosts::begin_shipping(const RunFile& run) {
  const Recipe::Hosts& settings = run.plan.recipe.hosts;
  PorterOptions options;
  options.store = keeper_directory(kHostDirectory) / "content";
  options.upload_bytes_per_second = ship_rate(settings.ship_megabits.value_or(0));
  auto porter = std::make_unique<Porter>(options);
  std::vector<RunShip::Host> hosts;
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(i));
    hosts.push_back({run.plan.hosts[i].name, name, run_directories_[i]});
    const net::LinkOptions link =
        ship_link(net::ProcessName::coordinator(), name, name, keys_[i].public_key,
                  std::chrono::seconds(settings.hold));
    porter->join(name, hosts[i].name, doors_[door_of_[i]].ship->expect(link));
  }
  ship_ = std::make_unique<RunShip>(std::move(hosts), std::move(porter));
}

void RunHosts::look_for_reasons_to_give_up(const std::atomic<int>& stops) const {
  check_calls(stops);
  if (fleet_) fleet_->check();
}

void RunHosts::check_calls(const std::atomic<int>& stops) const {
  if (stops.load() > 0) {
    throw UserError(ExitCode::interrupted, "stopped while hosts were still coming up");
  }
  for (const auto& call : calls_) {
    if (const std::string why = call->failure(); !why.empty()) {
      throw UserError(ExitCode::peer_lost, why);
    }
  }
}

RunHosts::Door& RunHosts::door_at(const std::string& address, const Recipe::Hosts& settings) {
  const auto found = std::ranges::find(doors_, address, &Door::address);
  if (found != doors_.end()) return *found;
  doors_.push_back({address, node_.listen(bind_at(address, settings.ports)),
                    node_.listen(bind_at(address, settings.ports)),
                    node_.listen(bind_at(address, settings.ports)),
                    node_.listen(bind_at(address, settings.ports))});
  return doors_.back();
}

KeeperJob RunHosts::job_for(const RunFile& run, std::size_t host) const {
  const RecipeHost listed = hosts_of(run.plan.recipe)[host];
  const Recipe::Hosts& settings = run.plan.recipe.hosts;
  const Door& door = doors_[door_of_[host]];
  KeeperJob job;
  job.run = run.run;
  job.run_name = run.plan.recipe.name;
  job.generation = node_.options().generation;
  job.host = static_cast<std::uint32_t>(host);
  job.host_name = run.plan.hosts[host].name;
  job.build = build_id();
  job.keys = keys_[host];
  job.launcher_key = node_.options().keys.public_key;
  job.endpoints = {{kKeeperService, door.keepers->endpoint()},
                   {kReachService, door.reach->endpoint()},
                   {kShipService, door.ship->endpoint()}};
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto name = net::ProcessName::keeper(static_cast<std::uint32_t>(i));
    job.keeper_keys[name.text()] = keys_[i].public_key;
  }
  job.directory = listed.directory.empty() ? kHostDirectory : listed.directory;
  job.environment = listed.environment;
  job.address = listed.address;
  job.devices = listed.devices;
  job.ports = settings.ports;
  job.hold = settings.hold;
  job.up_megabits = listed.up_megabits ? listed.up_megabits : settings.ship_megabits;
  job.down_megabits = listed.down_megabits;
  return job;
}

// What the hosts said of themselves, against what the plan took them for.
void RunHosts::amend(Plan& plan) {
  const std::vector<RecipeHost> listed = hosts_of(plan.recipe);
  const std::int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const HostFacts& facts = facts_[i];
    Plan::Host& host = plan.hosts[i];
    host.cores = facts.cores;
    host.memory = std::min(facts.memory, listed[i].memory.value_or(facts.memory));
    if (std::abs(facts.clock - now) > kClockTolerance) {
      notes_.push_back({"clock", fmt::format("the clock of host {} is {} s off; nothing depends on "
                                             "it but the times in its logs",
                                             host.name, facts.clock - now)});
    }
    std::int64_t needed = 0;
    for (Plan::Process& process : plan.processes) {
      if (process.host_index != i) continue;
      needed += process.state_bytes + process.activation_bytes + process.cache_bytes;
      if (!plan.recipe.pipeline.threads) {
        process.threads = std::max<std::int64_t>(1, facts.cores / count_on(plan, i));
      }
    }
    if (needed > host.memory) {
      throw UserError(
          ExitCode::out_of_memory,
          fmt::format("host {} may use {:.1f} GiB, but by the plan its stages need {:.1f} "
                      "GiB; give it fewer stages or layers, or make train.micro_batch "
                      "or codec.cache smaller",
                      host.name, static_cast<double>(host.memory) / (1U << 30U),
                      static_cast<double>(needed) / (1U << 30U)));
    }
  }
}

net::Listener& RunHosts::listener(std::size_t host) { return *doors_[door_of_.at(host)].control; }

Backend& RunHosts::backend() { return fleet_ ? static_cast<Backend&>(*fleet_) : *local_; }

void RunHosts::settle(StageJob& job, std::size_t host) const {
  job.coordinator_endpoint = doors_[door_of_.at(host)].control->endpoint();
  job.run_directory = run_directories_.at(host);
  if (ship_) ship_->settle(job, host);
  for (const LinkRoute& route : routes_) {
    if (route.binds == job.process) job.binds[route.link] = route.address;
  }
}

std::map<std::string, std::string> RunHosts::meet(std::map<std::string, std::string> endpoints) {
  return reach_ ? reach_->meet(std::move(endpoints)) : std::move(endpoints);
}

std::vector<std::vector<std::string>> RunHosts::addresses(const Recipe& recipe) const {
  return candidate_addresses(hosts_of(recipe), facts_);
}

void RunHosts::be_patient() {
  if (fleet_) fleet_->be_patient();
}

}  // namespace strait::launcher
