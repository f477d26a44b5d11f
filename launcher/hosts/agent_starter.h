#pragma once

#include <chrono>
#include <string>

#include "launcher/hosts/agent_job.h"

namespace strait::hosts {

// The way to one host until its keeper runs: over ssh, by srun, or somebody carries a token there.
// Calls of one run are made at the same time, each by a thread of its own; a call itself belongs to
// one thread at a time. Whatever is wrong with the host is a UserError that names it and the fix.
//
// Destroying a call gives up on it; a keeper that was handed its job goes on.
class AgentStarter {
 public:
  AgentStarter() = default;
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;
  virtual ~AgentStarter() = default;

  // The address of ours that this host can reach, where the launcher has to listen for it.
  virtual std::string launcher_address(std::chrono::steady_clock::time_point deadline) = 0;

  // Returns when the keeper has its job (or whoever starts it has).
  virtual void start_agent(const AgentJob& job, std::chrono::steady_clock::time_point deadline) = 0;

  // Why the keeper is gone, or will not come up, though it has its job; empty: nobody says so.
  virtual std::string failure() { return {}; }

  // The keeper has spoken for itself: what was held only to see whether its host lives is let go.
  virtual void disconnect() {}
};

}  // namespace strait::hosts
