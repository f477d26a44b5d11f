#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <csignal>
#include <random>

#include "framework/file_descriptor.h"
#include "framework/net/endpoint.h"
#include "framework/net/node.h"
#include "framework/store/file_hash.h"
#include "launcher/base/backend.h"
#include "launcher/base/process_identity.h"
#include "launcher/base/stop_signals.h"
#include "launcher/base/text.h"
#include "launcher/hosts/host_agent.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

// Ends of the agent and signals are noticed within this time.
constexpr auto kLookEvery = std::chrono::milliseconds(100);
// How a run ends follows the end of its agents within this time, or the run goes on.
constexpr auto kOutcomeWithin = std::chrono::seconds(5);

net::NodeOptions host_node(const JoinTicket& ticket) {
  net::NodeOptions options;
  options.name = net::ProcessName::host_agent(ticket.host);
  options.keys = ticket.keys;
  options.on_event = [](const std::string&) {};  // while the launcher is not up, every attempt
  return options;
}

// With an address in place of a name. nullopt: the name has none yet, or not any more: a scheduler
// may start the first node later, and move it.
std::optional<std::string> resolved(const std::string& text) {
  std::optional<net::Endpoint> endpoint = net::Endpoint::parse(text);
  if (!endpoint) return text;  // the link says what is wrong with it
  const std::vector<std::string> addresses = addresses_of(endpoint->host);
  if (addresses.empty()) return std::nullopt;
  endpoint->host = addresses.front();
  return endpoint->text();
}

class JoinedHost {
 public:
  JoinedHost(const JoinTicket& ticket, const std::atomic<int>& stops)
      : ticket_(ticket), stops_(stops), node_(host_node(ticket)) {}

  base::ExitCode run() {
    spdlog::info("host {} of {} looks for the launcher of run {} at {}", ticket_.host,
                 ticket_.hosts, ticket_.run_name, ticket_.endpoint);
    while (true) {
      if (const auto code = attend()) return *code;
      if (Clock::now() < last_seen_ + std::chrono::seconds(ticket_.wait)) continue;
      throw base::UserError(
          base::ExitCode::peer_lost,
          "the launcher of run {} at {} {} within {} s ({}): the run has ended, or it "
          "has not been started, or this host has no route to it",
          ticket_.run_name, ticket_.endpoint, was_joined_ ? "did not come back" : "did not answer",
          ticket_.wait, problem_);
    }
  }

 private:
  // One link with the launcher, from the attempt to its end. Returns when this host is done.
  std::optional<base::ExitCode> attend() {
    const std::optional<std::string> endpoint = resolved(ticket_.endpoint);
    if (!endpoint) {
      problem_ = "the name has no address";
      ::poll(nullptr, 0, static_cast<int>(kLookEvery.count()));
      return check_agent();
    }
    try {
      net::LinkOptions options = join_link(ticket_.host, ticket_.hosts,
                                           net::ProcessName::coordinator(), ticket_.launcher_key);
      options.connect_limit = std::min<std::chrono::milliseconds>(
          options.connect_limit, std::chrono::seconds(ticket_.wait));
      const auto link = node_.connect(*endpoint, options);
      link->send(format(NodeHello{base::own_host(), start_}));
      while (true) {
        if (const auto frame = link->receive_until(Clock::now() + kLookEvery)) {
          if (const auto code = handle(parse_join_message(*frame))) return code;
        }
        note_contact(link->state());
        if (const auto code = check_agent()) return code;
      }
    } catch (const net::LinkError& error) {
      return judge(error);
    }
  }

  void note_contact(const net::LinkState& state) {
    if (!state.connected) return;
    last_seen_ = Clock::now();
    if (!std::exchange(was_joined_, true)) spdlog::info("joined the run {}", ticket_.run_name);
  }

  std::optional<base::ExitCode> handle(const JoinMessage& message) {
    if (const auto* start = std::get_if<StartAgent>(&message)) {
      // The run restarts, and this host was asked to leave it: another process may take its place.
      if (stops_.load() > 0) return leave();
      base::Launch launch;
      launch.process = net::ProcessName::host_agent(ticket_.host);
      launch.argv = {stage_program_here(), "--run-agent"};
      launch.input = start->job;
      agent_.reset();  // of a former start: it ends with its processes
      agent_ = base::LocalBackend().start(launch);
    } else if (const auto* ended = std::get_if<RunEnded>(&message)) {
      agent_.reset();
      if (ended->code == base::ExitCode::done)
        spdlog::info("the run {} has ended", ticket_.run_name);
      else
        spdlog::error("the run {} has ended: {}", ticket_.run_name, base::printable(ended->text));
      return ended->code;
    }
    return std::nullopt;
  }

  // Passes requests to leave on to the agent, and notes its end.
  std::optional<base::ExitCode> check_agent() {
    for (; stops_handled_ < stops_.load(); ++stops_handled_) {
      // Two signals, because equal ones that are pending would be merged. The agent ignores
      // SIGTERM.
      if (agent_) ::kill(agent_->pid(), stops_handled_ == 0 ? base::kAskSignal : SIGINT);
    }
    if (const auto status = agent_ ? agent_->exit_status() : std::nullopt) {
      agent_.reset();
      // It has said why. The user can mend it, and join again.
      const base::ExitCode code = status->exit_code();
      if (code == base::ExitCode::bad_input || code == base::ExitCode::storage_full ||
          code == base::ExitCode::storage_io) {
        return code;
      }
      if (code == base::ExitCode::done) ended_by_launcher_ = Clock::now();
    }
    if (stops_handled_ == 0 || agent_) return std::nullopt;
    if (Clock::now() < ended_by_launcher_ + kOutcomeWithin) return std::nullopt;
    return leave();
  }

  base::ExitCode leave() {
    agent_.reset();
    spdlog::warn("interrupted: has left the run");
    return base::ExitCode::interrupted;
  }

  // Why the link has ended; nullopt: it is worth another attempt.
  std::optional<base::ExitCode> judge(const net::LinkError& error) {
    using Kind = net::LinkError::Kind;
    problem_ = error.what();
    switch (error.kind()) {
      case Kind::lost:
      case Kind::aborted:
        return std::nullopt;
      case Kind::unauthenticated:
        throw base::UserError(
            base::ExitCode::authentication,
            "the launcher at {} does not know this host: it has another secret or "
            "another number of nodes, or the token is of an earlier launcher ({})",
            ticket_.endpoint, error.what());
      case Kind::refused:
      case Kind::fenced:
      case Kind::unusable:
        break;
    }
    throw error;
  }

  const JoinTicket& ticket_;
  const std::atomic<int>& stops_;
  net::Node node_;
  const std::uint64_t start_ =
      (std::uint64_t{std::random_device()()} << 32U) | std::random_device()();
  Clock::time_point last_seen_ = Clock::now();
  bool was_joined_ = false;
  std::string problem_;
  std::unique_ptr<base::Process> agent_;  // destroying it kills it; its processes end then, too
  int stops_handled_ = 0;
  Clock::time_point ended_by_launcher_ = Clock::time_point::min();
};

// Held as long as this process lives, and by no file. On one machine a second process with the same
// ticket would take the place of the first one, and end the run. On two machines only the launcher
// can notice.
FileDescriptor hold_ticket(const JoinTicket& ticket) {
  const std::string name =
      "strait-join-" + store::hash_text(ticket.endpoint + ticket.keys.public_key).substr(0, 32);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(&address.sun_path[1], sizeof(address.sun_path) - 1);  // [0] is 0: an abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  FileDescriptor held(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (held.open() && ::bind(held.number(), reinterpret_cast<sockaddr*>(&address), size) == 0) {
    return held;
  }
  if (errno != EADDRINUSE) throw std::system_error(errno, std::generic_category(), "bind");
  throw base::UserError(base::ExitCode::bad_input,
                        "a process of this machine has already joined the run {} as "
                        "host {}; each host needs a token or rank of its own",
                        ticket.run_name, ticket.host);
}

}  // namespace

base::ExitCode join_run(const JoinTicket& ticket) {
  const FileDescriptor held = hold_ticket(ticket);
  const base::StopSignals signals;
  return JoinedHost(ticket, signals.count()).run();
}

}  // namespace strait::hosts
