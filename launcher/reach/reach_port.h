#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/mutex.h"
#include "launcher/reach/tcp_socket.h"
#include "launcher/reach/ticket.h"
#include "launcher/reach/wake_signal.h"

namespace strait::reach {

// Where a host can be reached, and the other end of every measurement: listens on the host's
// addresses and does what a caller with the right token wishes for (see path_measure.h). Own
// threads, one for each caller, which the destructor joins at once.
class ReachPort {
 public:
  struct Options {
    std::vector<std::string> addresses;
    std::pair<int, int> ports;  // the first free one of these, at each address
    std::string token;
    std::uint32_t host = 0;  // says that it is this one
  };

  explicit ReachPort(Options options);
  ReachPort(const ReachPort&) = delete;
  ReachPort& operator=(const ReachPort&) = delete;
  ~ReachPort();

  const std::vector<net::Endpoint>& endpoints() const { return endpoints_; }
  // Of addresses where it could not listen, a sentence each.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  struct Caller {
    store::FileDescriptor socket;
    std::atomic<bool> served{false};
    std::thread thread;
  };

  void accept_all();
  void admit(store::FileDescriptor socket);
  void serve(Caller& caller) const;

  Options options_;
  std::vector<store::FileDescriptor> listeners_;
  std::vector<net::Endpoint> endpoints_;
  std::vector<std::string> troubles_;
  WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  std::list<Caller> callers_;  // the accepting thread's alone
  std::thread thread_;
};

}  // namespace strait::reach
