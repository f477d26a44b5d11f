#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/mutex.h"
#include "framework/net/inbox.h"
#include "launcher/base/backend.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {

// The launcher's end of all host agents: starts processes on their hosts and tracks them. When the
// agent of a host is disconnected, its processes are lost. An outage of the path is waited out; an
// agent that has ended is known to be gone, by its own goodbye or by the processes it leaves.
//
// Any thread may call. Processes that it started must be destroyed before it; the destructor ends
// the agents.
class HostAgents : public base::Backend {
 public:
  struct Agent {
    std::string host;                 // as the recipe names it
    std::unique_ptr<net::Link> link;  // null: its agent was not started
  };
  // Stores what a process has appended to its log; called by one thread.
  using KeepLog = std::function<void(net::ProcessName, const std::string&)>;

  HostAgents(std::vector<Agent> agents, KeepLog keep_log);
  ~HostAgents() override;

  // A sentence about the hosts of these names, which have not connected in time.
  using LateText = std::function<std::string(const std::vector<std::string>& missing)>;

  // Waits for the first message of the agents of these hosts. UserError: they did not connect by
  // the deadline, or a host cannot be used. `poll` is called while this waits, and throws to give
  // up.
  std::vector<HostFacts> wait_for_facts(const std::vector<std::size_t>& hosts,
                                        std::chrono::steady_clock::time_point deadline,
                                        const LateText& late, const std::function<void()>& poll)
      STRAIT_EXCLUDES(mutex_);

  // From now on an agent may be silent for as long as its link holds; before, for 7 s.
  void tolerate_outages() STRAIT_EXCLUDES(mutex_);

  // The agent is disconnected.
  bool lost(std::size_t host) STRAIT_EXCLUDES(mutex_);
  // Waits until something arrives from its agent, for 7 s at most.
  bool responds(std::size_t host) STRAIT_EXCLUDES(mutex_);
  // A new agent was started on the host and uses this link. Processes of the former agent are lost,
  // and its link is closed.
  void replace(std::size_t host, std::unique_ptr<net::Link> link) STRAIT_EXCLUDES(mutex_);
  // The host cannot be used; treated like a disconnected one.
  void mark_lost(std::size_t host, const std::string& why) { lose(host, why); }
  // UserError: an agent that was started is lost, or silent for too long while the run starts.
  void check() STRAIT_EXCLUDES(mutex_);

  std::unique_ptr<base::Process> start(const base::Launch& launch) override STRAIT_EXCLUDES(mutex_);
  std::vector<std::unique_ptr<base::Process>> start_all(
      const std::vector<base::Launch>& launches) override STRAIT_EXCLUDES(mutex_);

 private:
  class RemoteProcess;
  struct Host {
    std::string name;
    std::shared_ptr<net::Link> link;  // null: no agent
    std::optional<HostFacts> facts;
    std::string lost;      // why its agent is disconnected; empty: it is not
    bool leaving = false;  // its agent has said Goodbye, and waits for Leave
    bool ended = true;     // the error of its link was taken from the inbox
  };
  struct Known {  // of a process
    std::size_t host = 0;
    std::int64_t pid = 0;
    std::optional<base::ExitStatus> ended;
    std::optional<ProcessRefused> refused;
  };

  void add_link(std::size_t host, std::shared_ptr<net::Link> link) STRAIT_REQUIRES(mutex_);
  void receive_all();
  void handle(std::size_t host, const AgentMessage& message) STRAIT_EXCLUDES(mutex_);
  // Null: it was not put there, or has been put on another host since.
  Known* process_on(std::size_t host, net::ProcessName process) STRAIT_REQUIRES(mutex_);
  void lose(std::size_t host, const std::string& why) STRAIT_EXCLUDES(mutex_);
  void send(std::size_t host, const LauncherMessage& message);
  void check_silence(std::size_t host) STRAIT_REQUIRES(mutex_);
  void check_locked(std::size_t host) STRAIT_REQUIRES(mutex_);
  base::ExitStatus status_of_lost_host(const Host& host) const STRAIT_REQUIRES(mutex_);
  std::shared_ptr<net::Link> link_to(std::size_t host) STRAIT_EXCLUDES(mutex_);
  void request_start(const base::Launch& launch) STRAIT_EXCLUDES(mutex_);
  // The process's id on its host, as soon as it runs. UserError: it was refused, or a host is lost.
  std::int64_t await(const base::Launch& launch, const std::set<std::size_t>& hosts,
                     std::chrono::steady_clock::time_point deadline) STRAIT_EXCLUDES(mutex_);
  std::optional<base::ExitStatus> exit_status(std::size_t host, net::ProcessName process)
      STRAIT_EXCLUDES(mutex_);
  std::optional<base::ExitStatus> exit_status_locked(std::size_t host, net::ProcessName process)
      STRAIT_REQUIRES(mutex_);

  const KeepLog keep_log_;
  Mutex mutex_;
  Condition changed_;
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  bool tolerates_silence_ STRAIT_GUARDED_BY(mutex_) = false;
  // The vector and the names are constant; the rest of a Host is guarded by mutex_.
  std::vector<Host> hosts_;
  std::map<net::ProcessName, Known> processes_ STRAIT_GUARDED_BY(mutex_);
  net::Inbox inbox_;      // of the links, by host
  std::thread receiver_;  // last: it uses all members above
};

}  // namespace strait::hosts
