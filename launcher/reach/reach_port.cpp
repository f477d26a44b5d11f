#include "launcher/reach/reach_port.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "launcher/reach/flow.h"

namespace strait::reach {
namespace {

using std::chrono::seconds;

constexpr seconds kTicketLimit{5};
constexpr seconds kServiceLimit{60};  // of one measurement
constexpr std::size_t kMostCallers = 64;

Instant in(seconds span) { return std::chrono::steady_clock::now() + span; }

void echo_until_closed(int socket) {
  const Instant deadline = in(kServiceLimit);
  std::array<std::byte, kEchoBytes> words{};
  while (true) {
    receive_all(socket, words, deadline);
    send_all(socket, words, deadline);
  }
}

void answer_wish(int socket, Ticket::Wish wish, std::uint32_t host) {
  switch (wish) {
    case Ticket::Wish::greet: {
      std::array<std::byte, sizeof host> name{};
      std::memcpy(name.data(), &host, sizeof host);
      return send_all(socket, name, in(kTicketLimit));
    }
    case Ticket::Wish::echo:
      return echo_until_closed(socket);
    case Ticket::Wish::receive:
      return pour(socket, in(kServiceLimit));
    case Ticket::Wish::send:
      return count_and_tell(socket, in(kServiceLimit));
    case Ticket::Wish::relay_binds:
    case Ticket::Wish::relay_dials:
      return;  // at the wrong door
  }
}

}  // namespace

ReachPort::ReachPort(Options options) : options_(std::move(options)) {
  for (const std::string& address : options_.addresses) {
    try {
      BoundPort bound = listen_at(address, options_.ports);
      listeners_.push_back(std::move(bound.socket));
      endpoints_.push_back(bound.endpoint);
    } catch (const PathError& error) {
      troubles_.emplace_back(error.what());
    }
  }
  thread_ = std::thread([this] { accept_all(); });
}

ReachPort::~ReachPort() {
  leaving_ = true;
  wake_.raise();
  thread_.join();
}

void ReachPort::accept_all() {
  std::vector<pollfd> polls(1, {wake_.number(), POLLIN, 0});
  for (const store::FileDescriptor& listener : listeners_) {
    polls.push_back({listener.number(), POLLIN, 0});
  }
  while (!leaving_) {
    ::poll(polls.data(), polls.size(), -1);
    for (std::size_t i = 1; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      store::FileDescriptor caller = take_caller(polls[i].fd);
      if (caller.open()) admit(std::move(caller));
    }
  }
  for (Caller& caller : callers_) ::shutdown(caller.socket.number(), SHUT_RDWR);
  for (Caller& caller : callers_) caller.thread.join();
}

void ReachPort::admit(store::FileDescriptor socket) {
  callers_.remove_if([](Caller& caller) {
    if (!caller.served) return false;
    caller.thread.join();
    return true;
  });
  if (callers_.size() >= kMostCallers) return;
  Caller& caller = callers_.emplace_back();
  caller.socket = std::move(socket);
  caller.thread = std::thread([this, &caller] {
    serve(caller);
    ::shutdown(caller.socket.number(), SHUT_RDWR);
    caller.served = true;
  });
}

void ReachPort::serve(Caller& caller) const {
  try {
    TicketBytes words{};
    receive_all(caller.socket.number(), words, in(kTicketLimit));
    const auto ticket = parse_ticket(words);
    if (!ticket || ticket->token != options_.token) return;
    answer_wish(caller.socket.number(), ticket->wish, options_.host);
  } catch (const PathError& left) {
    // The caller has what it wanted, or it tells its own side what went wrong.
    static_cast<void>(left);
  }
}

}  // namespace strait::reach
