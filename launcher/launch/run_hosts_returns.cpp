#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/hosts/agent_starters.h"
#include "launcher/hosts/agent_paths.h"
#include "launcher/launch/amended_plan.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/base/errors.h"

// How hosts that have no keeper (any more) come into a run that goes on.
namespace strait::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kOneCallLimit = std::chrono::seconds(30);
constexpr auto kOneMeetLimit = std::chrono::seconds(20);

}  // namespace

std::vector<control::Event> RunHosts::have_again(const plan::RunFile& run, std::uint32_t replica) {
  if (!agents_) return {};
  coming_up_ = false;
  std::set<std::size_t> hosts;
  for (const plan::Plan::Process& process : run.plan.processes) {
    if (process.name.replica == replica) hosts.insert(process.host_index);
  }
  std::vector<std::size_t> called;
  for (const std::size_t host : hosts) {
    if (agents_->answers(host)) continue;
    call_again(run, host);
    called.push_back(host);
  }
  if (called.empty()) return {};
  if (ship_) {
    const auto look = [&] {
      for (const std::size_t host : called) {
        if (!lost(host)) continue;
        throw base::UserError(base::ExitCode::peer_lost,
                        fmt::format("host {} was lost once more", run.plan.hosts[host].name));
      }
    };
    ship_->deliver_inputs(run.plan, {called, plan::plugin_copies(run.plan.recipe.plugins), "", false}, look,
                 [](const control::Event&) {});
  }
  std::vector<std::string> doors;
  for (const std::size_t door : door_of_) doors.push_back(doors_[door].address);
  return reach_->lay(run.plan, facts_, doors, [&](const plan::Plan::Link& link) {
    if (link.listens.replica != replica && link.connects.replica != replica) return false;
    return !lost(run.plan.process(link.listens).host_index) &&
           !lost(run.plan.process(link.connects).host_index);
  });
}

void RunHosts::call_again(const plan::RunFile& run, std::size_t host) {
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  calls_[host] = hosts::agent_starter_in_run(run.plan, host);
  hosts::AgentStarter& call = *calls_[host];
  const auto deadline = Clock::now() + kOneCallLimit;
  // A door of its own: the ends at the former one may be in use still.
  replace_door(host, open_door(call.launcher_address(deadline), settings));
  keys_[host] = net::CurveKeyPair::generate();
  Ends ends = expect_keeper(run.plan, host);
  agents_->replace(host, std::move(ends.keeper));
  reach_->hosts().replace(host, std::move(ends.reach));
  try {
    hosts::AgentJob job = job_for(run, host);
    // The others do not know its key: all that it lacks comes from here.
    std::erase_if(job.agent_keys, [&](const auto& one) { return one.first != job.name().text(); });
    call.start_agent(job, deadline);
    facts_[host] = agents_
                       ->meet({host}, Clock::now() + kOneMeetLimit,
                              [&call] {
                                const std::string why = call.failure();
                                if (!why.empty()) throw base::UserError(base::ExitCode::peer_lost, why);
                              })
                       .front();
    call.hang_up();
    check_memory(run.plan, host, facts_[host]);
  } catch (const base::UserError& error) {
    agents_->give_up(host, error.what());
    throw;
  }
  run_directories_[host] =
      hosts::host_run_directory(facts_[host].directory, run.plan.recipe.name, run.run).string();
  if (ship_) ship_->add_host(host, run_directories_[host], expect_transfer_agent(run.plan, host));
}

void RunHosts::replace_door(std::size_t host, Door door) {
  const std::size_t former = door_of_[host];
  doors_.push_back(std::move(door));
  door_of_[host] = doors_.size() - 1;
  // Nobody comes in there any more. Its place stays, for doors are known by their places.
  if (std::ranges::find(door_of_, former) == door_of_.end()) doors_[former] = Door{};
}

}  // namespace strait::launch
