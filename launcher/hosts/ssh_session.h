#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/agent_greeting.h"
#include "launcher/process/piped_process.h"

namespace strait::hosts {

// When one of several calls was last seen to come further. Any thread.
using LoginProgress = std::atomic<std::chrono::steady_clock::duration>;

struct SshTarget {
  std::string host;     // as ssh takes it
  std::string config;   // for ssh -F; empty: the user's own
  std::string address;  // of this machine, as told; empty: as the host sees us
  std::shared_ptr<LoginProgress> progress = nullptr;  // of all calls made together; null: only one
};

// Calls a host with the system's ssh: the keeper there greets, is told its job over stdin, leaves
// ssh's session and stays. From then on nothing hangs on the connection; it stays until disconnect(),
// for ssh sees whether its host lives. A host is given up when it gives no sign of life, however
// slow it is; before the login, which shows none, when no call has come further for seconds.
//
// Starts ssh at once and never waits outside of the calls below.
class SshSession : public AgentStarter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit SshSession(SshTarget target);

  std::string launcher_address(Time deadline) override;
  void start_agent(const AgentJob& job, Time deadline) override;
  std::string failure() override;
  void disconnect() override;

  // What the host said first; waits for it. UserError: it cannot be reached or logged into, or has
  // no strait; not that it has another build.
  const AgentGreeting& greeting(Time deadline);
  // Sends one request and returns the line that `wanted` accepts. UserError: the host refused, or
  // said nothing by the deadline.
  std::string ask(const std::string& request, bool (*wanted)(const std::string& line),
                  Time deadline);

 private:
  void check_build(Time deadline);
  Time login_deadline(Time deadline) const;
  [[noreturn]] void fail(process::PipedProcess::Heard heard, const std::string& waited_for);

  SshTarget target_;
  Time begun_;
  process::PipedProcess ssh_;
  std::string noise_;  // the last line that was none of ours
  bool logged_in_ = false;
  bool hung_up_ = false;
  std::optional<AgentGreeting> greeting_;
};

// Where a host finds this machine, given the address that it sees us at: that one, where it is one
// of `own`; where it is not, something between translates addresses. UserError asks to be told.
std::string address_seen_by(const std::string& host, const std::string& seen,
                            const std::vector<std::string>& own);

}  // namespace strait::hosts
