#pragma once

#include <set>
#include <thread>

#include "framework/mutex.h"
#include "framework/net/node.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/join_ticket.h"

namespace strait::hosts {

// The launcher's end of the hosts that join by themselves (join_run.h): who is there, and what each
// is to run. It lives as long as the launcher's process, so hosts stay joined when the run
// restarts, and a host that comes back joins again. Any thread may call.
class Rendezvous {
 public:
  struct Host {
    std::string name;        // as the recipe names it
    std::string public_key;  // empty: it is this machine, and nobody joins as it
  };

  // Listens at this address of this machine, on the first free port of the range. LinkError: there
  // is none.
  Rendezvous(const std::string& address, std::pair<int, int> ports, net::CurveKeyPair keys,
             std::vector<Host> hosts);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  // Tells the hosts that the run has ended, as end() says.
  virtual ~Rendezvous();

  const std::string& address() const { return address_; }
  std::string endpoint() const { return listener_->endpoint(); }
  // The others are named by the hosts of the recipe.
  bool is_here(const std::string& name) const { return here_.contains(name); }

  // The host starts an agent with this job as soon as it is there; an agent that it has ends. A
  // host that comes back gets the job again.
  void start_agent(const std::string& name, const std::string& job) STRAIT_EXCLUDES(mutex_);
  // Why a process could not join as this host; empty: none has tried, or it has joined.
  std::string refusal(const std::string& name) STRAIT_EXCLUDES(mutex_);
  // Waits until all hosts of these names are there. Returns for each why it is not; empty: it is.
  // `stopped` ends the wait.
  std::vector<std::string> wait_for(const std::vector<std::string>& names,
                                    std::chrono::seconds limit,
                                    const std::function<bool()>& stopped) STRAIT_EXCLUDES(mutex_);
  // How the run has ended, for the destructor. Without this call: the launcher has failed.
  void end(base::ExitCode code, const std::string& text) STRAIT_EXCLUDES(mutex_);

 private:
  struct Joined {
    Host host;
    std::unique_ptr<net::Link> link;  // null: it is this machine
    std::optional<NodeHello> hello;   // of the process that is there
    std::string job;                  // empty: none yet
    bool job_sent = false;
    std::string refusal;
    std::set<std::uint64_t> replaced;  // starts of processes in whose place another one came
  };

  void serve() STRAIT_EXCLUDES(mutex_);
  void turn(std::size_t index) STRAIT_REQUIRES(mutex_);
  void take_hello(Joined& joined, const NodeHello& hello) STRAIT_REQUIRES(mutex_);
  void expect(std::size_t index) STRAIT_REQUIRES(mutex_);
  bool is_there(const Joined& joined) const STRAIT_REQUIRES(mutex_);
  Joined& joined(const std::string& name) STRAIT_REQUIRES(mutex_);

  const std::string address_;
  const std::set<std::string> here_;
  net::Node node_;
  std::unique_ptr<net::Listener> listener_;
  Mutex mutex_;
  Condition changed_;
  std::vector<Joined> hosts_ STRAIT_GUARDED_BY(mutex_);
  RunEnded ended_ STRAIT_GUARDED_BY(mutex_);
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strait::hosts
