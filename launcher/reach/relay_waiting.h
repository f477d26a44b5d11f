#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/reach/tcp_socket.h"
#include "launcher/reach/ticket.h"

namespace strait::reach {

// The relay's door: connections that have not found their other end yet. Who says no valid ticket
// in time goes; of those who do, each side of a link has few places, and the newest are served
// first, because an old one may hang on a path that is gone. One thread.
class RelayWaiting {
 public:
  struct Pair {
    std::string token;
    store::FileDescriptor dials;
    store::FileDescriptor binds;
  };

  void admit(const std::string& token) { links_[token]; }
  void enter(store::FileDescriptor caller, Instant now);

  void append_to(std::vector<pollfd>& polls) const;

  // What append_to() put there, as poll(2) left it: the links of which both ends are here.
  std::vector<Pair> look(std::span<const pollfd> polls, Instant now);

  std::size_t size() const;  // connections

 private:
  struct Newcomer {
    store::FileDescriptor socket;
    Instant since{};
    TicketBytes said{};
    std::size_t length = 0;
  };
  struct Waiter {
    store::FileDescriptor socket;
    Instant since{};
  };
  struct Link {
    std::vector<Waiter> binds;
    std::vector<Waiter> dials;
  };

  void listen_to(Newcomer& newcomer, Instant now);
  void seat(const Ticket& ticket, Newcomer& newcomer, Instant now);

  std::vector<Newcomer> newcomers_;
  std::map<std::string, Link> links_;  // by token
};

}  // namespace strait::reach
