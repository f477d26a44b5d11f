#include "launcher/reach/relay_waiting.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace strait::reach {
namespace {

using std::chrono::seconds;

constexpr seconds kGreetingLimit{5};
constexpr seconds kDialPatience{10};  // its ZeroMQ tries again earlier
constexpr std::size_t kMostNewcomers = 256;
constexpr std::size_t kMostWaiters = 4;  // of a link and side

constexpr short kGone = POLLERR | POLLHUP | POLLRDHUP;

}  // namespace

void RelayWaiting::enter(store::FileDescriptor caller, Instant now) {
  if (newcomers_.size() >= kMostNewcomers) newcomers_.erase(newcomers_.begin());
  newcomers_.push_back({std::move(caller), now, {}, 0});
}

std::size_t RelayWaiting::size() const {
  std::size_t count = newcomers_.size();
  for (const auto& [token, link] : links_) count += link.binds.size() + link.dials.size();
  return count;
}

void RelayWaiting::append_to(std::vector<pollfd>& polls) const {
  for (const Newcomer& one : newcomers_) polls.push_back({one.socket.number(), POLLIN, 0});
  // What a waiter says is for its other end: only its end is looked for.
  for (const auto& [token, link] : links_) {
    for (const Waiter& one : link.binds) polls.push_back({one.socket.number(), POLLRDHUP, 0});
    for (const Waiter& one : link.dials) polls.push_back({one.socket.number(), POLLRDHUP, 0});
  }
}

std::vector<RelayWaiting::Pair> RelayWaiting::look(std::span<const pollfd> polls, Instant now) {
  std::size_t at = 0;
  std::vector<Newcomer> newcomers = std::exchange(newcomers_, {});
  const std::size_t first_waiter = newcomers.size();
  at = first_waiter;
  for (auto& [token, link] : links_) {
    const auto gone = [&](const Waiter&) { return (polls[at++].revents & kGone) != 0; };
    std::erase_if(link.binds, gone);
    std::erase_if(link.dials, gone);
    std::erase_if(link.dials, [&](const Waiter& one) { return now - one.since > kDialPatience; });
  }
  for (std::size_t i = 0; i < newcomers.size(); ++i) {
    if (polls[i].revents != 0) {
      listen_to(newcomers[i], now);
    } else if (now - newcomers[i].since <= kGreetingLimit) {
      newcomers_.push_back(std::move(newcomers[i]));
    }
  }
  std::vector<Pair> pairs;
  for (auto& [token, link] : links_) {
    while (!link.binds.empty() && !link.dials.empty()) {
      pairs.push_back(
          {token, std::move(link.dials.back().socket), std::move(link.binds.back().socket)});
      link.dials.pop_back();
      link.binds.pop_back();
    }
  }
  return pairs;
}

void RelayWaiting::listen_to(Newcomer& newcomer, Instant now) {
  const ssize_t got = ::recv(newcomer.socket.number(), newcomer.said.data() + newcomer.length,
                             newcomer.said.size() - newcomer.length, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
  if (got > 0) newcomer.length += static_cast<std::size_t>(got);
  if (newcomer.length < newcomer.said.size()) {
    newcomers_.push_back(std::move(newcomer));
    return;
  }
  const auto ticket = parse_ticket(newcomer.said);
  if (ticket) seat(*ticket, newcomer, now);
}

void RelayWaiting::seat(const Ticket& ticket, Newcomer& newcomer, Instant now) {
  const auto link = links_.find(ticket.token);
  if (link == links_.end()) return;
  auto& seats = ticket.wish == Ticket::Wish::relay_binds ? link->second.binds : link->second.dials;
  if (seats.size() >= kMostWaiters) seats.erase(seats.begin());
  seats.push_back({std::move(newcomer.socket), now});
}

}  // namespace strait::reach
