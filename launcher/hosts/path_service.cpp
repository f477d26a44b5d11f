#include "launcher/hosts/path_service.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cerrno>

#include "launcher/base/machine.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

// Below the launcher's timeouts of 60 and 120 s, so that it gets the cause and not a timeout.
constexpr auto kMeasureLimit = std::chrono::seconds(45);

net::Endpoint endpoint_of(const std::string& text) {
  const auto endpoint = net::Endpoint::parse(text);
  if (!endpoint) throw PathError(text + " is not an address of the form tcp://ADDRESS:PORT");
  return *endpoint;
}

// Loading libtorch from a slow disk takes most of it.
constexpr auto kSubprocessLimit = std::chrono::seconds(50);

std::string_view text_of(const net::Frame& frame) {
  return {static_cast<const char*>(static_cast<const void*>(frame.data())), frame.size()};
}

using std::chrono::milliseconds;

// Between attempts to reach the relay; doubled up to the longest.
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{2000};

}  // namespace

PortOpened PathService::reply_to(const OpenPort& request) {
  probe_links_.reset();  // its ports may be the only free ones
  if (request.addresses.empty()) return {};
  probe_links_ = std::make_unique<ProbeLinks>(node_, ports_, request);
  return probe_links_->opened();
}

PathsTried PathService::reply_to(const TryPaths& request) {
  const std::chrono::duration<double> limit(request.limit_seconds);
  return {probe_links().try_paths(request.targets,
                                  std::chrono::duration_cast<std::chrono::milliseconds>(limit),
                                  static_cast<int>(request.pings))};
}

FlowMeasured PathService::reply_to(const MeasureFlow& request) {
  const auto deadline = Clock::now() + kMeasureLimit;
  if (!request.send_seconds) {
    return {probe_links().receive_flow(request.peer, request.endpoints, deadline)};
  }
  probe_links().send_flow(request.peer, request.endpoints, *request.send_seconds, deadline);
  return {};
}

ListensAt PathService::reply_to(const JoinRelay& request) {
  const net::Endpoint relay = endpoint_of(request.relay);
  if (request.stage.empty()) return {relay_client().dial(relay, request.token).text()};
  relay_client().bind(relay, request.token, endpoint_of(request.stage));
  return {};
}

ProbeLinks& PathService::probe_links() {
  if (!probe_links_) throw PathError("no port for probes is open on this host");
  return *probe_links_;
}

RelayClient& PathService::relay_client() {
  if (!relay_client_) {
    relay_client_ =
        std::make_unique<RelayClient>([](const std::string& event) { spdlog::warn("{}", event); });
  }
  return *relay_client_;
}

ComputeMeasured measure_in_subprocess(const std::string& program, const MeasureCompute& request) {
  const auto deadline = std::chrono::steady_clock::now() + kSubprocessLimit;
  base::PipedProcess child({program, "--measure"});
  child.write(text_of(format(request)), deadline);
  child.close_input();
  std::string line;
  if (child.read_line(line, deadline) != base::PipedProcess::ReadResult::line) {
    child.wait_until(deadline);
    throw base::UserError(base::ExitCode::internal, "{} --measure has not answered: {}", program,
                          base::printable(child.errors()));
  }
  const auto reply = ReplyFrame<ComputeMeasured>::parse(std::as_bytes(std::span(line)));
  if (const auto* failed = std::get_if<Failure>(&reply)) {
    throw base::UserError(failed->code, failed->text);
  }
  return std::get<ComputeMeasured>(reply);
}

RelayClient::RelayClient(std::function<void(const std::string&)> on_event)
    : on_event_(std::move(on_event)), thread_([this] { serve(); }) {}

RelayClient::~RelayClient() {
  leaving_ = true;
  wake_.raise();
  thread_.join();
}

void RelayClient::bind(const net::Endpoint& relay, const std::string& token,
                       const net::Endpoint& stage) {
  {
    const MutexLock lock(mutex_);
    BindEnd end;
    end.relay = relay;
    end.token = token;
    end.stage = stage;
    new_binds_.push_back(std::move(end));
  }
  wake_.raise();
}

net::Endpoint RelayClient::dial(const net::Endpoint& relay, const std::string& token) {
  const MutexLock lock(mutex_);
  const auto known = ports_.find(token);
  if (known != ports_.end()) return known->second;
  // On loopback: only this host's stage connects to it.
  BoundPort port = listen_at("127.0.0.1", {0, 0});
  new_dials_.push_back({relay, token, std::move(port.socket)});
  wake_.raise();
  return ports_.emplace(token, port.endpoint).first->second;
}

void RelayClient::take_commands() {
  const MutexLock lock(mutex_);
  for (BindEnd& end : new_binds_) {
    std::erase_if(binds_, [&](const BindEnd& old) { return old.token == end.token; });
    // The stage has another endpoint now: what still goes to the former one would never arrive.
    forwardings_.drop(end.token);
    binds_.push_back(std::move(end));
  }
  std::ranges::move(new_dials_, std::back_inserter(dials_));
  new_binds_.clear();
  new_dials_.clear();
}

void RelayClient::serve() {
  std::vector<pollfd> polls;
  while (!leaving_) {
    take_commands();
    Instant now = std::chrono::steady_clock::now();
    polls.assign(1, {wake_.descriptor(), POLLIN, 0});
    for (BindEnd& end : binds_) {
      prepare(end, now);
      const short events = end.greeted ? POLLIN : POLLOUT;
      // poll(2) skips -1, so that positions stay the same as in binds_.
      polls.push_back({end.ready.open() ? end.ready.number() : -1, events, 0});
    }
    for (const DialEnd& end : dials_) polls.push_back({end.listener.number(), POLLIN, 0});
    const std::size_t first_forwarding = polls.size();
    forwardings_.append_to(polls);
    ::poll(polls.data(), polls.size(), poll_limit(now));
    now = std::chrono::steady_clock::now();
    wake_.lower();
    forwardings_.move(std::span<const pollfd>(polls).subspan(first_forwarding));
    std::size_t at = 1;
    for (BindEnd& end : binds_) proceed(end, polls[at++], now);
    for (const DialEnd& end : dials_) {
      if (polls[at++].revents != 0) answer(end);
    }
  }
}

// Milliseconds until the next attempt to connect is due.
int RelayClient::poll_limit(Instant now) const {
  Instant next = now + std::chrono::seconds(10);
  for (const BindEnd& end : binds_) {
    if (!end.ready.open()) next = std::min(next, end.try_at);
  }
  return base::milliseconds_until(next);
}

void RelayClient::prepare(BindEnd& end, Instant now) {
  if (end.ready.open() || now < end.try_at) return;
  end.greeted = false;
  try {
    end.ready = start_connect(end.relay);
  } catch (const PathError& error) {
    fail(end, error.what(), now);
  }
}

void RelayClient::proceed(BindEnd& end, const pollfd& poll, Instant now) {
  if (!end.ready.open() || poll.revents == 0) return;
  if (!end.greeted) {
    const std::string problem = connect_error(end.ready.number());
    if (!problem.empty()) return fail(end, problem, now);
    const PreambleBytes words = to_bytes({end.token, Preamble::End::binds});
    // The send buffer of a new connection is empty, so these bytes fit into it.
    if (::send(end.ready.number(), words.data(), words.size(), MSG_NOSIGNAL) < 0) {
      return fail(end, "it closed the connection", now);
    }
    end.greeted = true;
    return;
  }
  std::byte word{};
  const ssize_t got = ::recv(end.ready.number(), &word, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != 1 || word != kRelayGo) return fail(end, "it closed the connection", now);
  // The relay answers: the next loss begins with the shortest pause again.
  end.pause = milliseconds{0};
  end.reported = false;
  pass_on(end);
}

void RelayClient::fail(BindEnd& end, const std::string& why, Instant now) {
  end.ready = FileDescriptor();
  end.pause = std::clamp(2 * end.pause, kFirstPause, kLongestPause);
  end.try_at = now + end.pause;
  if (end.pause < kLongestPause || std::exchange(end.reported, true)) return;
  on_event_(fmt::format("the relay at {} does not answer ({}); still trying",
                        end.relay.host_and_port(), why));
}

void RelayClient::pass_on(BindEnd& end) {
  FileDescriptor relayed = std::exchange(end.ready, FileDescriptor());
  try {
    forwardings_.add(end.token, Forwarding(std::move(relayed), start_connect(end.stage)));
  } catch (const PathError& error) {
    on_event_(fmt::format("a relayed link cannot reach its stage: {}", error.what()));
  }
}

void RelayClient::answer(const DialEnd& end) {
  FileDescriptor caller = accept_connection(end.listener.number());
  if (!caller.open()) return;
  try {
    const PreambleBytes words = to_bytes({end.token, Preamble::End::dials});
    forwardings_.add(end.token, Forwarding(std::move(caller), start_connect(end.relay), words));
  } catch (const PathError& error) {
    on_event_(fmt::format("the relay cannot be dialled: {}", error.what()));
  }
}

}  // namespace strait::hosts
