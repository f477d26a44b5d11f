#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/net/node.h"
#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/plan/plan.h"
#include "launcher/launch/model_questions.h"
#include "launcher/launch/run_reach.h"
#include "launcher/control/run_directory.h"
#include "launcher/plan/run_files.h"
#include "launcher/launch/run_transfer.h"
#include "launcher/plan/stage_job.h"

namespace strait::launch {

// The hosts of one launch: this machine, where a local run has nothing else, or those that keepers
// keep. Where the launcher listens for them, what starts processes there, and what a process has to
// be told that depends on its host.
//
// One thread at a time. While one has hosts again for a replica that comes, any other may call
// be_patient(), lost() and what of ship() goes on meanwhile.
class RunHosts {
 public:
  // Brings the hosts up; a local run has nothing to bring up. What only a host can tell (cores,
  // threads) goes into run.plan. UserError: a host cannot be worked with. The node, with its keys,
  // the directory and the model outlive this object. `stops` as in Coordinator::run: any ends the waiting.
  // Hosts of replicas that the run begins `without`, and of nobody else, are not called where that
  // can be done later.
  RunHosts(net::Node& node, plan::RunFile& run, const control::RunDirectory& directory,
           const ModelQuestions& model, const std::atomic<int>& stops,
           const std::set<std::uint32_t>& without = {});
  RunHosts(const RunHosts&) = delete;
  RunHosts& operator=(const RunHosts&) = delete;
  ~RunHosts();

  // Where the ends of links have to connect to, given where all of them listen.
  std::map<std::string, std::string> meet(std::map<std::string, std::string> endpoints);
  // Where the stages of this host reach the coordinator.
  net::Listener& listener(std::size_t host);
  process::Backend& backend();
  // What is shipped to hosts and home; null where all see the same files.
  RunTransfer* ship() { return ship_.get(); }
  // Throws UserError where a stop was asked for, or a host is lost that is still coming up.
  void look_for_reasons_to_give_up(const std::atomic<int>& stops) const;
  // A part of coming up is over, such as "called"; and how long each took, as a sentence. Empty for
  // a local run.
  void phase_ended(const std::string& name);
  control::Event phases() const;
  // Fills in what the host decides: addresses and paths.
  void settle(plan::StageJob& job, std::size_t host) const;
  // Those that were called when the run began.
  const std::vector<std::size_t>& called() const { return there_; }
  // Nobody hears of this host any more; never of this machine.
  bool lost(std::size_t host) const { return agents_ && agents_->lost(host); }
  // All processes run: from now on a path may break for a while.
  void be_patient();

  // While the run goes: hosts of a replica that comes, of which some may have lost their keepers or
  // never had any. They are called and sent what the replica's processes read, and its links are
  // laid anew. What is worth knowing of that. UserError: why one of them cannot be had.
  std::vector<control::Event> have_again(const plan::RunFile& run, std::uint32_t replica);

  // How the ends of the plan's links meet, in its order.
  const std::vector<reach::LinkRoute>& routes() const { return reach_ ? reach_->routes() : routes_; }

  // Not for a local run: to ask the hosts about paths, and where each may be reached. Measuring
  // fills paths, so nobody is taken for lost in silence any more.
  reach::ReachClient& reach() {
    be_patient();
    return reach_->hosts();
  }
  std::vector<std::vector<std::string>> addresses(const recipe::Recipe& recipe) const;

  // What is worth knowing about the hosts and no failure; a sentence each.
  const std::vector<control::Event>& notes() const { return notes_; }

 private:
  // An address of ours with everything that listens at it.
  struct Door {
    std::string address;
    std::unique_ptr<net::Listener> control;
    std::unique_ptr<net::Listener> keepers;
    std::unique_ptr<net::Listener> reach;
    std::unique_ptr<net::Listener> ship;
  };

  // What the launcher expects of a keeper at a door.
  struct Ends {
    std::unique_ptr<net::Link> keeper;
    std::unique_ptr<net::Link> reach;
  };

  void bring_up(plan::RunFile& run, const control::RunDirectory& directory, const std::atomic<int>& stops,
                const std::set<std::uint32_t>& without);
  void call_again(const plan::RunFile& run, std::size_t host);
  Ends expect_keeper(const plan::Plan& plan, std::size_t host);
  std::unique_ptr<net::Link> expect_transfer_agent(const plan::Plan& plan, std::size_t host);
  void begin_shipping(const plan::RunFile& run);
  void check_calls(const std::atomic<int>& stops) const;
  Door open_door(const std::string& address, const recipe::Recipe::Hosts& settings);
  std::size_t door_at(const std::string& address, const recipe::Recipe::Hosts& settings);
  void replace_door(std::size_t host, Door door);
  hosts::AgentJob job_for(const plan::RunFile& run, std::size_t host) const;

  net::Node& node_;
  const ModelQuestions& model_;
  bool coming_up_ = true;           // until hosts are called in the middle of the run
  std::vector<std::size_t> there_;  // hosts that were called when the run began
  std::vector<Door> doors_;
  std::vector<std::size_t> door_of_;     // by host
  std::vector<net::CurveKeyPair> keys_;  // of keepers, by host
  std::vector<hosts::HostFacts> facts_;         // by host; empty for a local run, nothing where not called
  std::unique_ptr<process::Backend> local_;
  // By host; some carry the keepers for all their life, so they go last.
  std::vector<std::unique_ptr<hosts::AgentStarter>> calls_;
  std::unique_ptr<hosts::HostAgents> agents_;              // null for a local run
  std::vector<std::string> run_directories_;  // by host
  std::unique_ptr<RunReach> reach_;           // null for a local run
  std::unique_ptr<RunTransfer> ship_;             // null where all see the same files
  std::vector<reach::LinkRoute> routes_;             // of a local plan's links
  std::vector<control::Event> notes_;
  std::chrono::steady_clock::time_point phase_began_ = std::chrono::steady_clock::now();
  std::string phases_;
};

}  // namespace strait::launch
