#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/mutex.h"
#include "launcher/reach/tcp_socket.h"
#include "launcher/reach/wake_signal.h"

namespace strait::launcher {

// Joins the ends of links whose hosts cannot reach each other: both dial out to here and say their
// ticket, and from then on each gets the other's bytes. Bytes only: keys and frames stay with the
// ends. What it holds is bounded, and a slow reader slows its sender. When a connection breaks, the
// other end's is closed too, and both come again.
//
// Own thread, which the destructor joins; any thread may call.
class Relay {
 public:
  // Listens on each of the addresses, at the first free port of the range. PathError.
  Relay(const std::vector<std::string>& addresses, std::pair<int, int> ports);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();

  // One for each address, in order.
  const std::vector<net::Endpoint>& endpoints() const { return endpoints_; }

  // From now on the two ends that know the token are let in.
  void admit(const std::string& token);

  // Moved so far for that token, both ways.
  std::uint64_t bytes(const std::string& token) const;

 private:
  void serve();

  std::vector<store::FileDescriptor> listeners_;
  std::vector<net::Endpoint> endpoints_;
  WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  mutable Mutex mutex_;
  std::vector<std::string> admitted_ STRAIT_GUARDED_BY(mutex_);           // not yet by the thread
  std::map<std::string, std::uint64_t> moved_ STRAIT_GUARDED_BY(mutex_);  // by token
  std::thread thread_;
};

}  // namespace strait::launcher
