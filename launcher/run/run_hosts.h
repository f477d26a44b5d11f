#pragma once

#include "framework/net/node.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_agents.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/run/model_questions.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_reach.h"
#include "launcher/run/run_transfer.h"

namespace strait::run {

// Options of the launcher's node in one generation of a run, with new keys.
net::NodeOptions launcher_node(const net::RunId& run, std::uint32_t generation);

class SimulatedLinks;

// The hosts of one launch: this machine in a local run, otherwise hosts with agents. Starts the
// agents, starts processes through them, and fills in the host's part of a process's job.
//
// One thread at a time. While one thread is in rejoin_hosts(), any other may call
// tolerate_outages(), lost() and the parts of file_transfer() that allow it.
class RunHosts {
 public:
  // For ssh to connect and the agents to get their jobs. Logins have a limit of their own.
  static constexpr std::chrono::seconds kCallLimit{30};
  // For the agents to connect to the launcher.
  static constexpr std::chrono::seconds kFactsLimit{20};

  // Starts the agents; a local run has none. Writes facts of the hosts (cores, threads) into
  // run.plan. The node with its keys, the directory and the model outlive this object. `stops` as
  // in Coordinator::run: a positive count ends the wait. `rendezvous`: where the hosts join; null:
  // they are called. Hosts that only serve replicas in `without` are left out. UserError: a host
  // cannot be used.
  RunHosts(net::Node& node, plan::RunFile& run, const RunDirectory& directory,
           const ModelQuestions& model, const std::atomic<int>& stops,
           hosts::Rendezvous* rendezvous, const std::set<std::uint32_t>& without = {});
  RunHosts(const RunHosts&) = delete;
  RunHosts& operator=(const RunHosts&) = delete;
  ~RunHosts();

  // Endpoints by link, as the listening stages report them -> endpoints to connect to. They differ
  // for links that are relayed or simulated. Call it once all stages listen.
  std::map<std::string, std::string> connect_endpoints(
      std::map<std::string, std::string> endpoints);
  // Where the stages of this host reach the coordinator.
  net::Listener& listener(std::size_t host) { return listeners_.at(host); }
  base::Backend& backend();
  // File transfer to and from the hosts; null for a local run.
  RunTransfer* file_transfer() { return transfer_.get(); }
  // UserError: a stop was requested, or a host was lost before training began.
  void check_startup(const std::atomic<int>& stops) const;
  // Ends a phase of the start, such as "agents up".
  void phase_ended(const std::string& name);
  // How long each phase took, as a sentence; empty for a local run.
  Event phases() const;
  // Sets what depends on the host: addresses and paths.
  void fill_in(plan::StageJob& job, std::size_t host) const;
  // Hosts whose agents were started when the run began.
  const std::vector<std::size_t>& hosts_with_agents() const { return hosts_with_agents_; }
  // The host's agent is disconnected; never true of this machine.
  bool lost(std::size_t host) const { return agents_ && agents_->lost(host); }
  // All processes run: from now on an agent may be silent for as long as its link holds.
  void tolerate_outages();

  // During the run, for a replica that rejoins. Starts the agents of its hosts that are lost or
  // were never started, sends them the files that the replica reads, and routes its links anew.
  // Sets aside their checkpoints of steps after `saved`, from which the run resumed. Returns notes
  // for the user. `check` is called while this waits, and throws to give up. UserError: a host
  // cannot be used.
  std::vector<Event> rejoin_hosts(const plan::RunFile& run, std::uint32_t replica,
                                  store::Step saved, const std::function<void()>& check);

  // How the two ends of each link connect, in the plan's order.
  const std::vector<hosts::LinkRoute>& routes() const {
    return reach_ ? reach_->routes() : routes_;
  }

  // For measurements of the paths between hosts; not for a local run. A measurement fills the
  // paths, so from now on silence does not count as a loss.
  hosts::HostAgents& agents_to_measure() {
    tolerate_outages();
    return *agents_;
  }
  // Candidate addresses of each host.
  std::vector<std::vector<std::string>> addresses(const recipe::Recipe& recipe) const;

  // Notes about the hosts that are not errors.
  const std::vector<Event>& notes() const { return notes_; }

 private:
  void bring_up(plan::RunFile& run, const RunDirectory& directory, const std::atomic<int>& stops,
                const std::set<std::uint32_t>& without);
  void record_facts(const plan::RunFile& run, const std::vector<hosts::HostFacts>& facts);
  void restart_agent(const plan::RunFile& run, std::size_t host,
                     const std::function<void()>& check);
  std::vector<Event> prepare_restarted(const plan::RunFile& run, std::uint32_t replica,
                                       store::Step saved, const std::vector<std::size_t>& restarted,
                                       const std::function<void()>& check);
  void start_transfer(const plan::RunFile& run);
  void check_starters(const std::atomic<int>& stops) const;

  const ModelQuestions& model_;
  hosts::Rendezvous* const rendezvous_;
  const std::filesystem::path run_path_;
  // Until agents are started in the middle of the run.
  bool starting_up_ = true;
  std::vector<std::size_t> hosts_with_agents_;
  AgentListeners listeners_;
  // By host; empty for a local run, default values for hosts that were left out.
  std::vector<hosts::HostFacts> facts_;
  std::unique_ptr<base::Backend> local_;
  // By host. The agent of this machine lives as long as its starter, so starters are destroyed
  // after agents_, whose destructor ends the agents.
  std::vector<std::unique_ptr<hosts::AgentStarter>> starters_;
  std::unique_ptr<hosts::HostAgents> agents_;        // null for a local run
  std::vector<std::string> run_directories_;         // by host
  std::unique_ptr<RunReach> reach_;                  // null for a local run
  std::unique_ptr<RunTransfer> transfer_;            // null for a local run
  std::vector<hosts::LinkRoute> routes_;             // of a local plan's links
  std::unique_ptr<SimulatedLinks> simulated_links_;  // of a local run
  std::vector<Event> notes_;
  std::chrono::steady_clock::time_point phase_began_ = std::chrono::steady_clock::now();
  std::string phases_;
};

}  // namespace strait::run
