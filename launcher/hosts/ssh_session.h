#pragma once

#include "launcher/base/backend.h"
#include "launcher/base/errors.h"
#include "launcher/base/piped_process.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/recipe/recipe.h"

namespace strait::hosts {

// The command line of the system's ssh, and what its errors mean. Pure.

// The same command for every host and run. Everything else goes over stdin, where no shell expands
// it.
inline constexpr const char* kAgentCommand = R"(exec "$HOME"/.strait/bin/strait-stage --agent)";

// ssh prints this on stdout after the login and before the host's shell prints anything.
inline constexpr const char* kLoggedIn = "strait-ssh-logged-in";

// ssh disconnects after this time without an answer. The time is short while other hosts wait, and
// longer while our own data fills a slow link.
inline constexpr std::chrono::seconds kCallSilence{6};
inline constexpr std::chrono::seconds kTransferSilence{20};

// argv of a call. `config`: a file for ssh -F; empty: the user's own configuration.
std::vector<std::string> ssh_argv(const std::string& host, const std::string& config,
                                  const std::string& command, std::chrono::seconds silence);

// The error of a failed call, with the host and the fix. `errors`: stderr of ssh and of the remote
// program.
base::UserError ssh_failure(const std::string& host, const std::string& config,
                            const base::ExitStatus& status, const std::string& errors);

// "ssh -F hosts.config h0", as the user would type it.
std::string ssh_by_hand(const std::string& host, const std::string& config);

// When a session of a group last made progress with its login. Any thread.
using LoginProgress = std::atomic<std::chrono::steady_clock::duration>;

struct SshTarget {
  std::string host;     // as ssh takes it
  std::string config;   // for ssh -F; empty: the user's own
  std::string address;  // of this machine, by the recipe; empty: the one that the host sees
  std::shared_ptr<LoginProgress> progress =
      nullptr;                       // of all sessions started together; null: only one
  std::function<void()> check = {};  // called repeatedly while a session waits; may throw
};

// A session of the system's ssh with strait-stage on a host. strait-stage greets and reads a
// request or a job on stdin; for a job it starts an agent outside of ssh's session. The agent does
// not need the connection, but it stays open until disconnect(), because ssh notices when the host
// dies. After the login this waits for a slow host as long as ssh gets answers. A login shows no
// progress of its own, so the wait ends when no session of the group has made progress for 8 s.
//
// The constructor starts ssh; only the functions below wait.
class SshSession : public AgentStarter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit SshSession(SshTarget target);

  std::string launcher_address(Time deadline) override;
  void start_agent(const AgentJob& job, Time deadline) override;
  std::string failure() override;
  void disconnect() override;

  // Waits for the greeting, of any build. UserError: no connection, no login, or no strait there.
  const AgentGreeting& greeting(Time deadline);
  // Waits for the greeting. UserError: as above, or another build than this one.
  void check_build(Time deadline);
  // Sends one request and returns the line that `wanted` accepts. UserError: the host refused, or
  // did not answer by the deadline.
  std::string send_request(const std::string& request, bool (*wanted)(const std::string& line),
                           Time deadline);

 private:
  Time login_deadline(Time deadline) const;
  base::PipedProcess::ReadResult read_line(std::string& line, Time deadline);
  [[noreturn]] void fail(base::PipedProcess::ReadResult heard, const std::string& waited_for);

  SshTarget target_;
  Time begun_;
  base::PipedProcess ssh_;
  std::string other_output_;  // the last line of other output
  bool logged_in_ = false;
  bool disconnected_ = false;
  std::optional<AgentGreeting> greeting_;
};

// Calls all these hosts at the same time and starts nothing there. Returns for each host why it
// cannot be used now; empty: it answers, and its program is of this build.
std::vector<std::string> call_hosts(const recipe::Recipe::Hosts& settings,
                                    const std::vector<recipe::RecipeHost>& hosts,
                                    std::chrono::steady_clock::time_point deadline);

// The address at which a host reaches this machine. This is the address that the host sees, if it
// is in `own`; otherwise NAT is between them. UserError: set hosts.address.
std::string address_seen_by(const std::string& host, const std::string& seen,
                            const std::vector<std::string>& own);

}  // namespace strait::hosts
