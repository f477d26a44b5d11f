#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/file_descriptor.h"
#include "framework/net/wake_signal.h"
#include "launcher/hosts/tcp_socket.h"

namespace strait::hosts {

// The other end of probes and measurements (path_measure.h): listens on the host's addresses and
// serves connections that have the token. One thread accepts, and each connection has a thread,
// because measurements block; the destructor closes and joins them.
class ProbeServer {
 public:
  struct Options {
    std::vector<std::string> addresses;
    std::pair<int, int> ports;  // the first free one of these, at each address
    std::string token;
    std::uint32_t host = 0;  // sent to probes
  };

  explicit ProbeServer(Options options);
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;
  ~ProbeServer();

  const std::vector<net::Endpoint>& endpoints() const { return endpoints_; }
  // A sentence for each address where it could not listen.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  struct Connection {
    FileDescriptor socket;
    std::atomic<bool> served{false};
    std::thread thread;
  };

  void accept_all();
  void admit(FileDescriptor socket);
  void serve(Connection& caller) const;

  Options options_;
  std::vector<FileDescriptor> listeners_;
  std::vector<net::Endpoint> endpoints_;
  std::vector<std::string> troubles_;
  net::WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  std::list<Connection> connections_;  // the accepting thread's alone
  std::thread thread_;
};

}  // namespace strait::hosts
