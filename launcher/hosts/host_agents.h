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
#include "framework/net/link.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/process/backend.h"

namespace strait::hosts {

// The launcher's end of all keepers: starts processes on their hosts, and knows what became of
// them. A host that nobody hears of any more takes its processes with it: they are lost.
//
// Any thread may call. Processes that it started must end before it does; the destructor tells the
// keepers to leave.
class HostAgents : public process::Backend {
 public:
  struct Agent {
    std::string host;                 // what the recipe calls it
    std::unique_ptr<net::Link> link;  // null: the host was not called (yet)
  };
  // Keeps what a process has added to its log; called by one thread per host.
  using KeepLog = std::function<void(net::ProcessName, const std::string&)>;

  HostAgents(std::vector<Agent> agents, KeepLog keep_log);
  ~HostAgents() override;

  // Waits until the keepers of these hosts have said what they are. UserError names those that did
  // not by the deadline, or why one cannot be worked with. Meanwhile calls `look`, which may throw
  // to give up.
  std::vector<HostFacts> wait_for_facts(const std::vector<std::size_t>& hosts,
                              std::chrono::steady_clock::time_point deadline,
                              const std::function<void()>& look) STRAIT_EXCLUDES(mutex_);

  // From now on a host may be out of sight for as long as its link holds; before, for seconds only.
  void tolerate_outages() STRAIT_EXCLUDES(mutex_);

  // Nobody hears of this host any more.
  bool lost(std::size_t host) STRAIT_EXCLUDES(mutex_);
  // Waits for a sign of life of its keeper, for seconds at the most.
  bool responds(std::size_t host) STRAIT_EXCLUDES(mutex_);
  // Another keeper keeps the host from now on, over this link: what was left of the former one's
  // processes is lost, and it is not listened to any more.
  void replace(std::size_t host, std::unique_ptr<net::Link> link) STRAIT_EXCLUDES(mutex_);
  // There is no working with it; as if nobody heard of it any more.
  void mark_lost(std::size_t host, const std::string& why) { lose(host, why); }
  // UserError where a host that was called and has spoken is lost, or silent for too long while the
  // run comes up.
  void check() STRAIT_EXCLUDES(mutex_);

  std::unique_ptr<process::Process> start(const process::Launch& launch) override STRAIT_EXCLUDES(mutex_);
  std::vector<std::unique_ptr<process::Process>> start_all(const std::vector<process::Launch>& launches) override
      STRAIT_EXCLUDES(mutex_);

 private:
  class RemoteProcess;
  struct Host {
    std::string name;
    std::shared_ptr<net::Link> link;  // null: nobody keeps it
    std::optional<HostFacts> facts;
    std::string lost;  // why nobody hears of it any more
    std::thread listener;
  };
  struct Known {  // of a process
    std::size_t host = 0;
    std::int64_t pid = 0;
    std::optional<process::ExitStatus> ended;
    std::optional<ProcessRefused> refused;
  };

  void listen(std::size_t host, net::Link& link);
  void hear(std::size_t host, const AgentMessage& message) STRAIT_EXCLUDES(mutex_);
  void lose(std::size_t host, const std::string& why) STRAIT_EXCLUDES(mutex_);
  void tell(std::size_t host, const LauncherMessage& message);
  void check_silence(std::size_t host) STRAIT_REQUIRES(mutex_);
  void check_locked(std::size_t host) STRAIT_REQUIRES(mutex_);
  process::ExitStatus gone_with(const Host& host) const STRAIT_REQUIRES(mutex_);
  std::shared_ptr<net::Link> link_to(std::size_t host) STRAIT_EXCLUDES(mutex_);
  void order(const process::Launch& launch) STRAIT_EXCLUDES(mutex_);
  std::unique_ptr<process::Process> await(const process::Launch& launch, const std::set<std::size_t>& hosts,
                                 std::chrono::steady_clock::time_point deadline)
      STRAIT_EXCLUDES(mutex_);
  std::optional<process::ExitStatus> ended(std::size_t host, net::ProcessName process)
      STRAIT_EXCLUDES(mutex_);
  std::optional<process::ExitStatus> ended_locked(std::size_t host, net::ProcessName process)
      STRAIT_REQUIRES(mutex_);

  const KeepLog keep_log_;
  Mutex mutex_;
  Condition changed_;
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  bool tolerates_silence_ STRAIT_GUARDED_BY(mutex_) = false;
  // The vector and the names never change; what is known of a host does, and who keeps it.
  std::vector<Host> hosts_;
  std::map<net::ProcessName, Known> processes_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::hosts
