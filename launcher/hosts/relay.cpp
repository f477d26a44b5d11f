#include "launcher/hosts/relay.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace strait::hosts {
namespace {

using std::chrono::seconds;

// A client sends its token as soon as it is connected. A stranger may never send anything.
constexpr seconds kGreetingLimit{5};
constexpr seconds kDialLimit{10};               // the stage reconnects earlier
constexpr std::size_t kMostUnidentified = 256;  // connections that have sent no token yet
constexpr std::size_t kMostWaiters = 4;         // of a link and side

// How often waiting connections are checked for their limits.
constexpr int kExpiryCheckMilliseconds = 1000;

constexpr short kGone = POLLERR | POLLHUP | POLLRDHUP;

// Accepts all connections of one listener.
void accept_all(int listener, PendingConnections& pending, Instant now) {
  while (true) {
    FileDescriptor caller = accept_connection(listener);
    if (!caller.open()) return;
    pending.add(std::move(caller), now);
  }
}

void join_ends(std::vector<PendingConnections::Pair> pairs, ForwardingSet& forwardings) {
  for (PendingConnections::Pair& pair : pairs) {
    // One byte always fits into the buffer of a socket that has sent nothing. If the connection is
    // dead, the first move shows it.
    const std::byte go = kRelayGo;
    static_cast<void>(::send(pair.binds.number(), &go, 1, MSG_NOSIGNAL));
    forwardings.add(pair.token, Forwarding(std::move(pair.dials), std::move(pair.binds)));
  }
}

}  // namespace

void PendingConnections::add(FileDescriptor caller, Instant now) {
  // The oldest goes: a stranger who opens connections and sends nothing must not keep hosts out.
  if (unidentified_.size() >= kMostUnidentified) unidentified_.erase(unidentified_.begin());
  unidentified_.push_back({std::move(caller), now, {}, 0});
}

std::size_t PendingConnections::size() const {
  std::size_t count = unidentified_.size();
  for (const auto& [token, link] : links_) count += link.binds.size() + link.dials.size();
  return count;
}

void PendingConnections::append_to(std::vector<pollfd>& polls) const {
  for (const Unidentified& one : unidentified_) polls.push_back({one.socket.number(), POLLIN, 0});
  // Bytes of a waiting connection are for its other end: only POLLRDHUP is wanted.
  for (const auto& [token, link] : links_) {
    for (const Waiter& one : link.binds) polls.push_back({one.socket.number(), POLLRDHUP, 0});
    for (const Waiter& one : link.dials) polls.push_back({one.socket.number(), POLLRDHUP, 0});
  }
}

std::vector<PendingConnections::Pair> PendingConnections::handle(std::span<const pollfd> polls,
                                                                 Instant now) {
  std::size_t at = 0;
  std::vector<Unidentified> unidentified = std::exchange(unidentified_, {});
  const std::size_t first_waiter = unidentified.size();
  at = first_waiter;
  for (auto& [token, link] : links_) {
    const auto gone = [&](const Waiter&) { return (polls[at++].revents & kGone) != 0; };
    std::erase_if(link.binds, gone);
    std::erase_if(link.dials, gone);
    std::erase_if(link.dials, [&](const Waiter& one) { return now - one.since > kDialLimit; });
  }
  for (std::size_t i = 0; i < unidentified.size(); ++i) {
    if (polls[i].revents != 0) {
      read_preamble(unidentified[i], now);
    } else if (now - unidentified[i].since <= kGreetingLimit) {
      unidentified_.push_back(std::move(unidentified[i]));
    }
  }
  std::vector<Pair> pairs;
  for (auto& [token, link] : links_) {
    while (!link.binds.empty() && !link.dials.empty()) {
      pairs.push_back(
          // The newest of each side, for the same reason.
          {token, std::move(link.dials.back().socket), std::move(link.binds.back().socket)});
      link.dials.pop_back();
      link.binds.pop_back();
    }
  }
  return pairs;
}

void PendingConnections::read_preamble(Unidentified& connection, Instant now) {
  const ssize_t got =
      ::recv(connection.socket.number(), connection.bytes.data() + connection.length,
             connection.bytes.size() - connection.length, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
  if (got > 0) connection.length += static_cast<std::size_t>(got);
  if (connection.length < connection.bytes.size()) {
    unidentified_.push_back(std::move(connection));
    return;
  }
  const auto preamble = parse_preamble(connection.bytes);
  if (preamble) enqueue(*preamble, connection, now);
}

void PendingConnections::enqueue(const Preamble& preamble, Unidentified& connection, Instant now) {
  const auto link = links_.find(preamble.token);
  // An unknown token is a stranger, or a link that has got another route. The connection is closed
  // without an answer.
  if (link == links_.end()) return;
  auto& waiting = preamble.end == Preamble::End::binds ? link->second.binds : link->second.dials;
  // The newest are kept: an end reconnects when its former connection has died without notice.
  if (waiting.size() >= kMostWaiters) waiting.erase(waiting.begin());
  waiting.push_back({std::move(connection.socket), now});
}

Relay::Relay(std::pair<int, int> ports) : ports_(std::move(ports)), thread_([this] { serve(); }) {}

Relay::~Relay() {
  leaving_ = true;
  wake_.raise();
  thread_.join();
}

net::Endpoint Relay::endpoint(const std::string& address) {
  const MutexLock lock(mutex_);
  const auto known = endpoints_.find(address);
  if (known != endpoints_.end()) return known->second;
  BoundPort bound = listen_at(address, ports_);
  opened_.push_back(std::move(bound.socket));
  wake_.raise();
  return endpoints_.emplace(address, bound.endpoint).first->second;
}

void Relay::admit(const std::string& token) {
  {
    const MutexLock lock(mutex_);
    admitted_.push_back(token);
  }
  wake_.raise();
}

void Relay::serve() {
  PendingConnections pending;
  ForwardingSet forwardings;
  std::vector<pollfd> polls;
  while (!leaving_) {
    // Built anew in each round: which sockets there are changes with every connection, and there
    // are few.
    polls.assign(1, {wake_.descriptor(), POLLIN, 0});
    for (const FileDescriptor& listener : listeners_) {
      polls.push_back({listener.number(), POLLIN, 0});
    }
    const std::size_t first_waiting = polls.size();
    pending.append_to(polls);
    const std::size_t first_forwarding = polls.size();
    forwardings.append_to(polls);
    ::poll(polls.data(), polls.size(), kExpiryCheckMilliseconds);
    const Instant now = std::chrono::steady_clock::now();
    const std::span<const pollfd> answers(polls);
    wake_.lower();
    forwardings.move(answers.subspan(first_forwarding));
    auto pairs =
        pending.handle(answers.subspan(first_waiting, first_forwarding - first_waiting), now);
    join_ends(std::move(pairs), forwardings);
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (answers[1 + i].revents != 0) accept_all(listeners_[i].number(), pending, now);
    }
    const MutexLock lock(mutex_);
    std::ranges::move(opened_, std::back_inserter(listeners_));
    opened_.clear();
    for (const std::string& token : admitted_) pending.admit(token);
    admitted_.clear();
  }
}

}  // namespace strait::hosts
