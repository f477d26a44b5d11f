#pragma once

#include <future>
#include <set>
#include <thread>

#include "framework/mutex.h"
#include "framework/net/inbox.h"
#include "launcher/base/backend.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {

// The launcher's end of all host agents: sends them requests, and starts and tracks processes on
// their hosts. When the agent of a host is disconnected, its processes are lost. An outage of the
// path is waited out; an agent that has ended is known to be gone, by its own goodbye or by the
// processes it leaves.
//
// Any thread may call. Processes that it started must be destroyed before it; the destructor ends
// the agents.
class HostAgents : public base::Backend {
 public:
  struct Agent {
    std::string host;                 // as the recipe names it
    std::unique_ptr<net::Link> link;  // null: its agent was not started
    std::string key;                  // its public key, for other hosts
  };
  // Stores what a process has appended to its log; called by one thread.
  using KeepLog = std::function<void(net::ProcessName, const std::string&)>;

  // `poll` is called every 200 ms while ask_all() waits for replies, and throws to give up.
  HostAgents(std::vector<Agent> agents, KeepLog keep_log, std::function<void()> poll);
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
  void replace(std::size_t host, std::unique_ptr<net::Link> link, const std::string& key)
      STRAIT_EXCLUDES(mutex_);
  // The host cannot be used; treated like a disconnected one.
  void mark_lost(std::size_t host, const std::string& why) STRAIT_EXCLUDES(mutex_);
  // UserError: an agent that was started is lost, or silent for too long while the run starts.
  void check() STRAIT_EXCLUDES(mutex_);

  std::string name(std::size_t host) const { return hosts_.at(host).name; }
  std::string key(std::size_t host) STRAIT_EXCLUDES(mutex_);

  // Calls on_reply once, on any thread: with Failure if the host is lost before it replies.
  template <class Request>
  void ask(std::size_t host, const Request& request,
           std::function<void(const ReplyTo<Request>&)> on_reply) {
    send_request(host, request, [on_reply = std::move(on_reply)](std::span<const std::byte> reply) {
      on_reply(ReplyFrame<typename Request::Reply>::parse(reply));
    });
  }
  // The reply.
  template <class Request>
  std::future<ReplyTo<Request>> ask(std::size_t host, const Request& request) {
    const auto promise = std::make_shared<std::promise<ReplyTo<Request>>>();
    ask(host, request, [promise](const ReplyTo<Request>& reply) { promise->set_value(reply); });
    return promise->get_future();
  }
  // Waits for all replies, which may be Failure. UserError names a host that is lost (peer_lost) or
  // has not replied in time (stalled).
  template <class Request>
  std::map<std::size_t, ReplyTo<Request>> ask_all(const std::map<std::size_t, Request>& requests,
                                                  std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::map<std::size_t, std::future<ReplyTo<Request>>> replies;
    for (const auto& [host, request] : requests) replies.emplace(host, ask(host, request));
    std::map<std::size_t, ReplyTo<Request>> all;
    for (auto& [host, reply] : replies) {
      while (reply.wait_for(kPollEvery) != std::future_status::ready)
        check_time(host, deadline, limit);
      const auto& taken = all.emplace(host, reply.get()).first->second;
      if (std::holds_alternative<Failure>(taken)) check(host);
    }
    return all;
  }

  std::unique_ptr<base::Process> start(const base::Launch& launch) override STRAIT_EXCLUDES(mutex_);
  std::vector<std::unique_ptr<base::Process>> start_all(
      const std::vector<base::Launch>& launches) override STRAIT_EXCLUDES(mutex_);

 private:
  class RemoteProcess;
  struct Host {
    std::string name;
    std::string key;
    std::shared_ptr<net::Link> link;  // null: no agent
    std::optional<HostFacts> facts;
    std::string lost;      // why its agent is disconnected; empty: it is not
    bool leaving = false;  // its agent has said Goodbye, and waits for End
    bool ended = true;     // the error of its link was taken from the inbox
  };
  struct Known {  // of a process
    std::size_t host = 0;
    std::optional<base::ExitStatus> ended;
  };
  using OnReply = std::function<void(std::span<const std::byte> reply)>;
  struct Asked {  // a request that waits for its reply
    std::size_t host = 0;
    OnReply on_reply;
  };
  static constexpr std::chrono::milliseconds kPollEvery{200};

  void add_link(std::size_t host, std::shared_ptr<net::Link> link) STRAIT_REQUIRES(mutex_);
  void receive_all();
  void handle(std::size_t host, const AgentHello& hello) STRAIT_EXCLUDES(mutex_);
  void handle(std::size_t host, const ProcessReport& report) STRAIT_EXCLUDES(mutex_);
  void handle(std::size_t host, const Goodbye& goodbye) STRAIT_EXCLUDES(mutex_);
  void send_request(std::size_t host, const LauncherMessage& request, OnReply on_reply)
      STRAIT_EXCLUDES(mutex_);
  // Ignored: the request has a reply already, or is one of another host.
  void reply(std::size_t host, std::uint64_t number, std::span<const std::byte> message)
      STRAIT_EXCLUDES(mutex_);
  // The reply of a host that was lost before it replied.
  void fail(std::size_t host, std::uint64_t number, const std::string& why) STRAIT_EXCLUDES(mutex_);
  // UserError: the time of ask_all() is over, or `poll` threw.
  void check_time(std::size_t host, std::chrono::steady_clock::time_point deadline,
                  std::chrono::seconds limit) const;
  void check(std::size_t host) STRAIT_EXCLUDES(mutex_);
  void link_ended(std::size_t host) STRAIT_EXCLUDES(mutex_);
  // Null: it was not put there, or has been put on another host since.
  Known* process_on(std::size_t host, net::ProcessName process) STRAIT_REQUIRES(mutex_);
  void lose(std::size_t host, const std::string& why) STRAIT_REQUIRES(mutex_);
  void send(std::size_t host, const LauncherMessage& message, std::uint64_t number = 0)
      STRAIT_EXCLUDES(mutex_, sending_);
  void check_silence(std::size_t host) STRAIT_REQUIRES(mutex_);
  void check_locked(std::size_t host) STRAIT_REQUIRES(mutex_);
  base::ExitStatus status_of_lost_host(const Host& host) const STRAIT_REQUIRES(mutex_);
  // The process's id on its host, as soon as it runs. UserError: it was refused, or a host is lost.
  std::int64_t await(const base::Launch& launch, std::future<ReplyTo<StartProcess>>& reply,
                     const std::set<std::size_t>& hosts,
                     std::chrono::steady_clock::time_point deadline) STRAIT_EXCLUDES(mutex_);
  std::optional<base::ExitStatus> exit_status(std::size_t host, net::ProcessName process)
      STRAIT_REQUIRES(mutex_);

  const KeepLog keep_log_;
  const std::function<void()> poll_;
  // A link has one sender at a time. All links share this, because no host holds up the others: a
  // link's window has room for all that waits for a host.
  Mutex sending_;
  Mutex mutex_;
  Condition changed_;
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  bool tolerates_silence_ STRAIT_GUARDED_BY(mutex_) = false;
  // The vector and the names are constant; the rest of a Host is guarded by mutex_.
  std::vector<Host> hosts_;
  std::map<net::ProcessName, Known> processes_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Asked> requests_ STRAIT_GUARDED_BY(mutex_);  // by number
  std::uint64_t last_number_ STRAIT_GUARDED_BY(mutex_) = 0;
  net::Inbox inbox_;      // of the links, by host
  std::thread receiver_;  // last: it uses all members above
};

// The content of a reply, or null and why there is none.
template <class Reply>
const Reply* content_of(const std::variant<Failure, Reply>& reply, std::string& problem) {
  if (const auto* failed = std::get_if<Failure>(&reply)) problem = failed->text;
  return std::get_if<Reply>(&reply);
}

}  // namespace strait::hosts
