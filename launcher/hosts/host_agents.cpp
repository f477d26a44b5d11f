#include "launcher/hosts/host_agents.h"

#include <csignal>

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than an agent waits for a new process to read its job, so that its own error is reported.
constexpr auto kStartLimit = std::chrono::seconds(20);
// While a run starts, giving up costs little and all hosts wait. Longer than an outage of 5 s, and
// short enough for all processes to end within 10 s.
constexpr auto kSilence = std::chrono::seconds(7);
constexpr auto kFlushTimeout = std::chrono::seconds(2);
constexpr const char* kInterrupted = "it was interrupted there (Ctrl-C or SIGTERM)";
constexpr const char* kDisconnected = "the connection to its agent is lost: {}";

}  // namespace

// A process on a host. Its agent ends it if this object is destroyed first.
class HostAgents::RemoteProcess : public base::Process {
 public:
  RemoteProcess(HostAgents& agents, std::size_t host, const net::ProcessName& name,
                base::StartLog log, std::int64_t pid)
      : agents_(agents), host_(host), name_(name), log_(std::move(log)), pid_(pid) {}
  ~RemoteProcess() override {
    // Qualified, because in a destructor a virtual call does not reach a derived class.
    if (RemoteProcess::exit_status()) return;
    RemoteProcess::kill();
    RemoteProcess::wait_until(Clock::now() + std::chrono::seconds(5));
  }

  int pid() const override { return static_cast<int>(pid_); }
  std::string host() const override { return agents_.hosts_[host_].name; }
  std::optional<base::ExitStatus> exit_status() override {
    const MutexLock lock(agents_.mutex_);
    return agents_.exit_status(host_, name_);
  }
  std::optional<base::ExitStatus> wait_until(Clock::time_point deadline) override {
    const MutexLock lock(agents_.mutex_);
    auto status = agents_.exit_status(host_, name_);
    while (!status && Clock::now() < deadline) {
      agents_.changed_.wait_until(agents_.mutex_, std::min(deadline, Clock::now() + kPollEvery));
      status = agents_.exit_status(host_, name_);
    }
    return status;
  }
  void kill() override { agents_.send(host_, End{name_}); }
  bool host_leaves() override {
    const MutexLock lock(agents_.mutex_);
    return agents_.hosts_[host_].leaving;
  }
  void parent_ended() override {
    // A process of a replaced agent says nothing about the present agent.
    if (!RemoteProcess::exit_status())
      agents_.mark_lost(host_, "its agent was killed or has crashed");
  }
  std::vector<std::string> log_tail(std::size_t count) const override { return log_.tail(count); }

 private:
  HostAgents& agents_;
  const std::size_t host_;
  const net::ProcessName name_;
  const base::StartLog log_;
  const std::int64_t pid_;
};

HostAgents::HostAgents(std::vector<Agent> agents, KeepLog keep_log, std::function<void()> poll)
    : keep_log_(std::move(keep_log)), poll_(std::move(poll)) {
  for (Agent& agent : agents) {
    Host& host = hosts_.emplace_back();
    host.name = std::move(agent.host);
    host.key = std::move(agent.key);
    if (agent.link) {
      add_link(hosts_.size() - 1, std::move(agent.link));
    } else {
      host.lost = "its agent was not started";
    }
  }
  receiver_ = std::thread([this] { receive_all(); });
}

HostAgents::~HostAgents() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  const auto deadline = Clock::now() + kFlushTimeout;
  for (std::size_t i = 0; i < hosts_.size(); ++i) send(i, End{});
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    if (!host.link) continue;
    // An agent closes its link when it ends. One that is disconnected ends by itself after `hold`.
    try {
      if (!lost(i)) host.link->flush(deadline);
    } catch (const net::LinkError&) {  // it closed the link before it acknowledged the message
    }
    host.link->abort(net::LinkError(net::LinkError::Kind::aborted, "the launcher has ended"));
  }
  inbox_.close();
  receiver_.join();
}

bool HostAgents::lost(std::size_t host) {
  const MutexLock lock(mutex_);
  return !hosts_.at(host).lost.empty();
}

void HostAgents::tolerate_outages() {
  const MutexLock lock(mutex_);
  tolerates_silence_ = true;
}

bool HostAgents::responds(std::size_t host) {
  const auto begun = Clock::now();
  const MutexLock lock(mutex_);
  while (hosts_.at(host).lost.empty()) {
    const auto heard = hosts_[host].link->state().last_heard;
    // A message from before the call proves nothing: the host may have gone since.
    if (heard > begun) return true;
    if (Clock::now() - std::max(heard, begun - kSilence) > kSilence) return false;
    changed_.wait_until(mutex_, Clock::now() + kPollEvery);
  }
  return false;
}

void HostAgents::replace(std::size_t host, std::unique_ptr<net::Link> link,
                         const std::string& key) {
  Host& kept = hosts_.at(host);
  // Processes of the former agent are lost, even if it only was disconnected: its keys are void.
  mark_lost(host, "another agent was started there");
  const MutexLock lock(mutex_);
  for (auto& [name, known] : processes_) {
    if (known.host == host && !known.ended) known.ended = status_of_lost_host(kept);
  }
  // What the former agent has sent must not count for the new one.
  while (!kept.ended) changed_.wait(mutex_);
  kept.facts.reset();
  kept.lost.clear();
  kept.leaving = false;
  kept.key = key;
  add_link(host, std::move(link));
}

void HostAgents::add_link(std::size_t host, std::shared_ptr<net::Link> link) {
  hosts_[host].link = std::move(link);
  hosts_[host].ended = false;
  inbox_.add(host, *hosts_[host].link);
}

std::vector<HostFacts> HostAgents::wait_for_facts(const std::vector<std::size_t>& hosts,
                                                  Clock::time_point deadline, const LateText& late,
                                                  const std::function<void()>& poll) {
  const MutexLock lock(mutex_);
  while (true) {
    std::vector<HostFacts> facts;
    std::vector<std::string> missing;
    for (const std::size_t host : hosts) {
      check_locked(host);
      if (hosts_[host].facts)
        facts.push_back(*hosts_[host].facts);
      else
        missing.push_back(hosts_[host].name);
    }
    if (missing.empty()) return facts;
    poll();
    changed_.wait_until(mutex_, std::min(deadline, Clock::now() + kPollEvery));
    if (Clock::now() >= deadline) {
      throw base::UserError(base::ExitCode::peer_lost, late(missing));
    }
  }
}

void HostAgents::check() {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].link) check_locked(i);
  }
}

void HostAgents::check_locked(std::size_t host) {
  check_silence(host);
  const Host& one = hosts_.at(host);
  if (one.lost.empty() && !one.leaving) return;
  throw base::UserError(base::ExitCode::peer_lost, "host {}: {}", one.name,
                        one.leaving ? kInterrupted : one.lost);
}

std::unique_ptr<base::Process> HostAgents::start(const base::Launch& launch) {
  return std::move(start_all({launch}).front());
}

std::vector<std::unique_ptr<base::Process>> HostAgents::start_all(
    const std::vector<base::Launch>& launches) {
  std::set<std::size_t> hosts;  // a lost host without launches does not matter here
  std::vector<base::StartLog> logs;
  std::vector<std::future<ReplyTo<StartProcess>>> replies;
  replies.reserve(launches.size());
  for (const base::Launch& launch : launches) {
    hosts.insert(launch.host);
    logs.emplace_back(launch.log);
    {
      const MutexLock lock(mutex_);
      // Before the request: the process may end before the reply has been handled.
      processes_[launch.process] = Known{launch.host, {}};
    }
    // All are sent first, so that hosts start their processes at the same time.
    replies.push_back(ask(launch.host, StartProcess{launch.process, launch.input}));
  }
  const auto deadline = Clock::now() + kStartLimit;
  std::vector<std::unique_ptr<base::Process>> started;
  started.reserve(launches.size());
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const std::int64_t pid = await(launches[i], replies[i], hosts, deadline);
    started.push_back(std::make_unique<RemoteProcess>(*this, launches[i].host, launches[i].process,
                                                      std::move(logs[i]), pid));
  }
  return started;
}

std::int64_t HostAgents::await(const base::Launch& launch,
                               std::future<ReplyTo<StartProcess>>& reply,
                               const std::set<std::size_t>& hosts, Clock::time_point deadline) {
  while (reply.wait_for(kPollEvery) != std::future_status::ready) {
    {
      const MutexLock lock(mutex_);
      for (const std::size_t one : hosts) check_locked(one);
    }
    if (Clock::now() < deadline) continue;
    throw base::UserError(base::ExitCode::stalled, "host {} has not started {} within {} s",
                          name(launch.host), launch.process.describe(), kStartLimit.count());
  }
  const ReplyTo<StartProcess> message = reply.get();
  if (const auto* started = std::get_if<ProcessStarted>(&message)) return started->pid;
  const auto& failed = std::get<Failure>(message);
  throw base::UserError(failed.code, "host {}: {}", name(launch.host), failed.text);
}

std::string HostAgents::key(std::size_t host) {
  const MutexLock lock(mutex_);
  return hosts_.at(host).key;
}

void HostAgents::check_time(std::size_t host, Clock::time_point deadline,
                            std::chrono::seconds limit) const {
  if (poll_) poll_();
  if (Clock::now() < deadline) return;
  throw base::UserError(base::ExitCode::stalled,
                        "host {} has not replied within {} s; it may be "
                        "overloaded: see the log of its agent",
                        name(host), limit.count());
}

void HostAgents::check(std::size_t host) {
  const MutexLock lock(mutex_);
  check_locked(host);
}

void HostAgents::send_request(std::size_t host, const LauncherMessage& request, OnReply on_reply) {
  std::uint64_t number = 0;
  std::string lost;
  {
    const MutexLock lock(mutex_);
    number = ++last_number_;
    requests_[number] = {host, std::move(on_reply)};
    lost = hosts_.at(host).lost;
  }
  // The receiving thread may have seen the end of the link before the request was recorded.
  if (!lost.empty()) return fail(host, number, lost);
  send(host, request, number);
}

// As the host would have sent it, so that a request has one way to its end. The type of the reply
// does not matter: a failure is written the same for all.
void HostAgents::fail(std::size_t host, std::uint64_t number, const std::string& why) {
  reply(host, number, ReplyFrame<ListensAt>::format(Failure{base::ExitCode::peer_lost, why}));
}

void HostAgents::reply(std::size_t host, std::uint64_t number, std::span<const std::byte> message) {
  OnReply on_reply;
  {
    const MutexLock lock(mutex_);
    const auto found = requests_.find(number);
    if (found == requests_.end() || found->second.host != host) return;
    on_reply = std::move(found->second.on_reply);
    requests_.erase(found);
  }
  on_reply(message);
}

void HostAgents::receive_all() {
  while (const auto arrival = inbox_.take_until(Clock::time_point::max())) {
    const std::size_t host = arrival->link;
    try {
      const auto [number, message] = take_number(arrival->frame());
      if (number != 0) {
        reply(host, number, message);
      } else {
        std::visit([&](const auto& one) { handle(host, one); }, parse_agent_message(message));
        changed_.notify_all();
      }
    } catch (const net::LinkError& error) {
      mark_lost(host, fmt::format(kDisconnected, error.what()));
      link_ended(host);
    } catch (const base::MessageError& error) {
      mark_lost(host, error.what());
    }
  }
}

void HostAgents::link_ended(std::size_t host) {
  // Collected first: reply() takes the lock by itself, and its handler may make another request.
  std::vector<std::uint64_t> unanswered;
  std::string why;
  {
    const MutexLock lock(mutex_);
    hosts_[host].ended = true;
    why = hosts_[host].lost;
    for (const auto& [number, request] : requests_) {
      if (request.host == host) unanswered.push_back(number);
    }
  }
  changed_.notify_all();
  for (const std::uint64_t number : unanswered) fail(host, number, why);
}

void HostAgents::handle(std::size_t host, const AgentHello& hello) {
  const MutexLock lock(mutex_);
  hosts_[host].facts = hello.facts;
}

void HostAgents::handle(std::size_t host, const ProcessReport& report) {
  {
    const MutexLock lock(mutex_);
    if (process_on(host, report.process) == nullptr) return;
  }
  // Without the lock: it writes to a disk, and start_all() waits for the same lock. Before the end,
  // because a reader of the end expects the last lines.
  if (!report.log.empty()) keep_log_(report.process, report.log);
  if (!report.code && !report.signal) return;
  base::ExitStatus status;
  if (report.code) status.code = static_cast<int>(*report.code);
  if (report.signal) status.signal = static_cast<int>(*report.signal);
  const MutexLock lock(mutex_);
  if (Known* const known = process_on(host, report.process)) known->ended = status;
}

void HostAgents::handle(std::size_t host, const Goodbye& goodbye) {
  const MutexLock lock(mutex_);
  hosts_[host].leaving = true;
  if (goodbye.now) lose(host, kInterrupted);
}

HostAgents::Known* HostAgents::process_on(std::size_t host, net::ProcessName process) {
  const auto found = processes_.find(process);
  return found != processes_.end() && found->second.host == host ? &found->second : nullptr;
}

void HostAgents::mark_lost(std::size_t host, const std::string& why) {
  const MutexLock lock(mutex_);
  lose(host, why);
  changed_.notify_all();
}

// The end of the link is the end of its requests, too.
void HostAgents::lose(std::size_t host, const std::string& why) {
  Host& one = hosts_[host];
  // The first reason counts: the abort below makes the link report another one.
  if (one.lost.empty()) one.lost = why;
  if (one.link) one.link->abort(net::LinkError(net::LinkError::Kind::aborted, why));
}

// A closed link is no error here: the receiving thread reports it, too.
void HostAgents::send(std::size_t host, const LauncherMessage& message, std::uint64_t number) {
  std::shared_ptr<net::Link> link;
  {
    const MutexLock lock(mutex_);
    link = hosts_.at(host).link;
  }
  if (!link) return;
  try {
    // Not mutex_: a send blocks while the link's window is full, and the receiving thread must go
    // on.
    const MutexLock lock(sending_);
    link->send(with_number(number, format(message)));
  } catch (const net::LinkError& error) {
    mark_lost(host, fmt::format(kDisconnected, error.what()));
  }
}

void HostAgents::check_silence(std::size_t host) {
  if (tolerates_silence_ || closing_ || !hosts_[host].lost.empty() || !hosts_[host].facts) return;
  const auto silence = Clock::now() - hosts_[host].link->state().last_heard;
  if (silence <= kSilence) return;
  lose(host, fmt::format("the connection to its agent is lost: nothing was received for {} s "
                         "while the run started",
                         std::chrono::duration_cast<std::chrono::seconds>(silence).count()));
}

std::optional<base::ExitStatus> HostAgents::exit_status(std::size_t host,
                                                        net::ProcessName process) {
  const Known& known = processes_.at(process);
  // Its own end counts more than that of its host.
  if (known.ended) return known.ended;
  check_silence(host);
  if (hosts_[host].lost.empty()) return std::nullopt;
  return status_of_lost_host(hosts_[host]);
}

base::ExitStatus HostAgents::status_of_lost_host(const Host& host) const {
  return {std::nullopt, std::nullopt, fmt::format("its host {} is gone: {}", host.name, host.lost)};
}

}  // namespace strait::hosts
