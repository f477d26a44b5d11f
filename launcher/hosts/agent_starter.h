#pragma once

#include <chrono>
#include <string>

#include "launcher/hosts/agent_job.h"

namespace strait::hosts {

// Starts the agent of one host: over ssh, by srun, or by a token that a person carries there. The
// starters of one run are used at the same time, each by a thread of its own; one starter belongs
// to one thread at a time. Errors are UserError and name the host and the fix.
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

  // Returns when the agent has its job, or the program that starts it has.
  virtual void start_agent(const AgentJob& job, std::chrono::steady_clock::time_point deadline) = 0;

  // Why the agent ended or cannot start although it was given its job; empty: not known to.
  virtual std::string failure() { return {}; }

  // The agent has connected to the launcher: closes what only showed that the host is alive.
  virtual void disconnect() {}
};

}  // namespace strait::hosts
