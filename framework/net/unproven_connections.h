#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace strait::net {

// Connections of a listener on which no expected peer has spoken yet. libzmq accepts any peer
// and waits seconds for a key; so that strangers cannot take all descriptors of the process, only
// so many may wait: for one more the oldest is closed. libzmq owns them and may close them at any
// time; a descriptor may then be another one's, so the kernel's cookie is compared. Belongs to the
// net thread.
class UnprovenConnections {
 public:
  static constexpr std::size_t kMost = 64;

  void accepted(int descriptor);
  void proven(int descriptor);  // a message of an expected peer came on it

 private:
  struct Connection {
    int descriptor = -1;
    std::uint64_t cookie = 0;
  };
  std::deque<Connection> waiting_;
};

}  // namespace strait::net
