#pragma once

#include <poll.h>

#include <map>
#include <thread>

#include "framework/file_descriptor.h"
#include "framework/mutex.h"
#include "framework/net/wake_signal.h"
#include "launcher/hosts/forwarding.h"

namespace strait::hosts {

// Inbound connections of the relay that are not paired yet. A connection without a valid preamble
// within 5 s is closed. Each side of a link keeps 4 waiting connections, and the newest is paired
// first, because an old one may belong to a dead path. One thread.
class PendingConnections {
 public:
  struct Pair {
    std::string token;
    FileDescriptor dials;
    FileDescriptor binds;
  };

  void admit(const std::string& token) { links_[token]; }
  void add(FileDescriptor caller, Instant now);

  void append_to(std::vector<pollfd>& polls) const;

  // The results of poll(2) for what append_to() added. Returns pairs of both ends of a link.
  std::vector<Pair> handle(std::span<const pollfd> polls, Instant now);

  std::size_t size() const;  // connections

 private:
  struct Unidentified {
    FileDescriptor socket;
    Instant since{};
    PreambleBytes bytes{};
    std::size_t length = 0;
  };
  struct Waiter {
    FileDescriptor socket;
    Instant since{};
  };
  struct Link {
    std::vector<Waiter> binds;
    std::vector<Waiter> dials;
  };

  void read_preamble(Unidentified& connection, Instant now);
  void enqueue(const Preamble& preamble, Unidentified& connection, Instant now);

  std::vector<Unidentified> unidentified_;
  std::map<std::string, Link> links_;  // by token
};

// Relays links between hosts that cannot reach each other: both ends connect to the relay and send
// a preamble; from then on it forwards bytes between them. It has no keys and does not parse
// frames. Its memory is bounded, and a slow reader slows its sender. When one connection breaks the
// other is closed, and both ends reconnect.
//
// Own thread, which the destructor joins; any thread may call.
class Relay {
 public:
  explicit Relay(std::pair<int, int> ports);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();

  // The relay's endpoint for hosts that reach this machine at that address: the first free port of
  // the range, opened by the first call. PathError.
  net::Endpoint endpoint(const std::string& address);

  // Accepts the two ends that have this token from now on.
  void admit(const std::string& token);

 private:
  void serve();

  const std::pair<int, int> ports_;
  net::WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  Mutex mutex_;
  std::map<std::string, net::Endpoint> endpoints_ STRAIT_GUARDED_BY(mutex_);  // by address
  // For the thread to take over.
  std::vector<FileDescriptor> opened_ STRAIT_GUARDED_BY(mutex_);
  std::vector<std::string> admitted_ STRAIT_GUARDED_BY(mutex_);
  std::vector<FileDescriptor> listeners_;  // the thread's own
  std::thread thread_;
};

}  // namespace strait::hosts
