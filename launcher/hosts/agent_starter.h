#pragma once

#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/join_ticket.h"
#include "launcher/hosts/rendezvous.h"
#include "launcher/recipe/plan.h"

namespace strait::hosts {

// Starts the agent of one host: over ssh, or on a host that joins by itself. The starters of one
// run are used at the same time, each by a thread of its own; one starter belongs to one thread at
// a time. Errors are UserError and name the host and the fix.
//
// Destroying a starter gives up waiting; an agent that has its job goes on.
class AgentStarter {
 public:
  AgentStarter() = default;
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;
  virtual ~AgentStarter() = default;

  // The address of this machine that the host can reach; the launcher listens there.
  virtual std::string launcher_address(std::chrono::steady_clock::time_point deadline) = 0;

  // Returns when the agent has its job, or will get it as soon as its host is there.
  virtual void start_agent(const AgentJob& job, std::chrono::steady_clock::time_point deadline) = 0;

  // Why the agent ended or could not start although it has its job; empty: no failure is known.
  virtual std::string failure() { return {}; }

  // Call it when the agent has connected to the launcher. Closes the connection that showed until
  // then that the host is alive.
  virtual void disconnect() {}
};

// Calls work(0) to work(n - 1) at the same time, each on its own thread, because each call waits
// for its host. Returns the error of each; null: none.
std::vector<std::exception_ptr> for_each_host(std::size_t count,
                                              const std::function<void(std::size_t)>& work);

// Starters for the hosts of the plan, as its backend needs them; in the order of plan.hosts, null
// for hosts that are `left_out`. `run` is the run's directory; `rendezvous` is where hosts join.
std::vector<std::unique_ptr<AgentStarter>> make_agent_starters(
    const plan::Plan& plan, const std::filesystem::path& run, Rendezvous* rendezvous,
    const std::set<std::size_t>& left_out);

// During the run, for a host without an agent. `check` is called repeatedly while the starter waits
// for the host, and throws to give up.
std::unique_ptr<AgentStarter> agent_starter_in_run(const plan::Plan& plan, std::size_t host,
                                                   const std::filesystem::path& run,
                                                   Rendezvous* rendezvous,
                                                   std::function<void()> check);

// Where the launcher puts the token of a host: <run>/join/<host>.token.
std::filesystem::path token_file(const std::filesystem::path& run, std::size_t host);

// The address of this machine that tokens hold: hosts.address, or where that is absent
// the only one of `own`. UserError names these.
std::string address_for_joining(const std::string& configured, const std::vector<std::string>& own);

// Called before anything is started or announced. UserError: the launcher cannot listen at the
// recipe's address, or there is no address to tell joining hosts. Only for ssh and join.
void check_launcher_address(const recipe::Recipe::Hosts& hosts);

// Instructions for the user: where the tokens are, and how to use them. Empty: no host joins.
std::vector<std::string> join_instructions(const recipe::Recipe& recipe,
                                           const std::filesystem::path& run);

// What to do about hosts that have not connected to the launcher in time. Pure.
std::string late_hosts_text(const recipe::Recipe::Hosts& hosts,
                            const std::vector<std::string>& missing);

// Where the hosts of a recipe join by tokens: each gets one, a file that only its owner can read. A
// person copies it there and runs `strait join`. The files are removed with the result. Null: the
// hosts do not join.
std::unique_ptr<Rendezvous> open_rendezvous(const recipe::Recipe& recipe,
                                            const std::filesystem::path& run);
// Where the nodes of `run --rendezvous` join; the first one is this machine, and listens at
// hosts.address.
std::unique_ptr<Rendezvous> open_rendezvous(const recipe::Recipe::Hosts& settings,
                                            const std::string& secret);
// By which such a node joins.
JoinTicket ticket_of_node(const recipe::Recipe& recipe, const NodeRank& node,
                          const std::string& secret);

// The agent of a host that joins, or of this machine where it is the first of a rendezvous.
std::unique_ptr<AgentStarter> join_starter(Rendezvous& rendezvous, const std::string& host,
                                           const std::filesystem::path& run);

}  // namespace strait::hosts
