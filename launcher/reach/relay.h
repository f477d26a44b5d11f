#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/mutex.h"
#include "launcher/reach/tcp_socket.h"

namespace strait::reach {

// The relay's door: connections that have not found their other end yet. Who says no valid preamble
// in time goes; of those who do, each side of a link has few places, and the newest are served
// first, because an old one may hang on a path that is gone. One thread.
class PendingConnections {
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
  struct Unidentified {
    store::FileDescriptor socket;
    Instant since{};
    PreambleBytes said{};
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

  void listen_to(Unidentified& connection, Instant now);
  void seat(const Preamble& preamble, Unidentified& connection, Instant now);

  std::vector<Unidentified> unidentified_;
  std::map<std::string, Link> links_;  // by token
};


// Joins the ends of links whose hosts cannot reach each other: both dial out to here and say their
// preamble, and from then on each gets the other's bytes. Bytes only: keys and frames stay with the
// ends. What it holds is bounded, and a slow reader slows its sender. When a connection breaks, the
// other end's is closed too, and both come again.
//
// Own thread, which the destructor joins; any thread may call.
class Relay {
 public:
  explicit Relay(std::pair<int, int> ports);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();

  // Where those find it who reach this machine at that address: the first free port of the range,
  // at which it listens from the first call on. PathError.
  net::Endpoint place(const std::string& address);

  // From now on the two ends that know the token are let in.
  void admit(const std::string& token);

  // Moved so far for that token, both ways.
  std::uint64_t bytes(const std::string& token) const;

 private:
  void serve();

  const std::pair<int, int> ports_;
  WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  mutable Mutex mutex_;
  std::map<std::string, net::Endpoint> places_ STRAIT_GUARDED_BY(mutex_);  // by address
  // Not yet the thread's.
  std::vector<store::FileDescriptor> opened_ STRAIT_GUARDED_BY(mutex_);
  std::vector<std::string> admitted_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> moved_ STRAIT_GUARDED_BY(mutex_);  // by token
  std::vector<store::FileDescriptor> listeners_;                          // the thread's own
  std::thread thread_;
};

}  // namespace strait::reach
