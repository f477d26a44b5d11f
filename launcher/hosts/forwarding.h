#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/file_descriptor.h"

namespace strait::hosts {

// Forwards bytes between two connections in both directions. Its buffers are bounded, so a slow
// reader slows the sender, and grow with what comes, so a silent connection takes no memory. One
// thread, which polls for waits_for() and calls move(). Either connection may still be connecting;
// its errors show at the first move.
class Forwarding {
 public:
  // `ahead` is sent to `far` before the bytes from `near`.
  Forwarding(FileDescriptor near, FileDescriptor far, std::span<const std::byte> ahead = {});

  std::array<pollfd, 2> waits_for() const;

  // Moves what can be moved now. False: one connection has ended, and its last bytes were forwarded
  // as far as possible; destroy this object.
  bool move();

  std::uint64_t bytes() const { return near_.bytes + far_.bytes; }  // moved so far, both ways

 private:
  // What was read from one side and not yet written to the other.
  struct Buffer {
    std::vector<std::byte> memory;
    std::size_t first = 0;
    std::size_t last = 0;
    bool ended = false;  // nothing more will come
    std::uint64_t bytes = 0;

    bool has_room() const;
    bool empty() const { return first == last; }
  };

  static bool fill(int from, Buffer& held);
  static bool drain(int to, Buffer& held);

  FileDescriptor near_socket_;
  FileDescriptor far_socket_;
  Buffer near_;  // from near, for far
  Buffer far_;
};

// The forwardings of one thread, and the bytes moved for each name.
class ForwardingSet {
 public:
  void add(const std::string& name, Forwarding forwarding) {
    open_.push_back({name, std::move(forwarding), 0});
  }
  void drop(const std::string& name);

  void append_to(std::vector<pollfd>& polls) const;

  // What append_to() put there, as poll(2) left it. Ended forwardings go.
  void move(std::span<const pollfd> polls);

  const std::map<std::string, std::uint64_t>& bytes() const { return bytes_; }
  std::size_t size() const { return open_.size(); }

 private:
  struct Named {
    std::string name;
    Forwarding forwarding;
    std::uint64_t counted = 0;
  };

  std::vector<Named> open_;
  std::map<std::string, std::uint64_t> bytes_;
};

}  // namespace strait::hosts
