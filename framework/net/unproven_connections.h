#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace strait::net {

// Connections of a listener on which no expected peer has spoken yet. libzmq accepts any peer and
// waits seconds for its key. At most kMost such connections may wait, so that strangers cannot take
// all file descriptors; one more closes the oldest. libzmq owns the connections and may close them
// at any time. A descriptor may then belong to another connection, so the kernel's cookie is
// compared. Used by the net thread only.
class UnprovenConnections {
 public:
  static constexpr std::size_t kMost = 64;

  void accepted(int descriptor);
  void proven(int descriptor);  // an expected peer sent a message on it

 private:
  struct Connection {
    int descriptor = -1;
    std::uint64_t cookie = 0;
  };
  std::deque<Connection> waiting_;
};

}  // namespace strait::net
