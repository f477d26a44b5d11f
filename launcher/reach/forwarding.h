#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <poll.h>
#include <span>
#include <string>
#include <vector>

#include "framework/store/file_descriptor.h"

namespace strait::reach {

// Two connections of which each gets the other's bytes. Holds a bounded amount: whoever reads
// slowly slows down who sends. Belongs to one thread, which polls for what it waits for and moves
// it. Either connection may still be on its way: what is wrong with it shows at the first move.
class Forwarding {
 public:
  // `ahead` goes to `far` before all that comes from `near`.
  Forwarding(store::FileDescriptor near, store::FileDescriptor far,
         std::span<const std::byte> ahead = {});

  std::array<pollfd, 2> waits_for() const;

  // Moves what can be moved now. False: an end is closed or lost, and all that it had said was
  // handed on as far as it could be; destroy the splice.
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

    bool has_room() const { return !ended && last < memory.size(); }
    bool empty() const { return first == last; }
  };

  static bool fill(int from, Buffer& held);
  static bool drain(int to, Buffer& held);

  store::FileDescriptor near_socket_;
  store::FileDescriptor far_socket_;
  Buffer near_;  // from near, for far
  Buffer far_;
};


// The forwardings of one thread, and the bytes that each name's have moved.
class ForwardingSet {
 public:
  void add(const std::string& name, Forwarding splice) {
    open_.push_back({name, std::move(splice), 0});
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
    Forwarding splice;
    std::uint64_t counted = 0;
  };

  std::vector<Named> open_;
  std::map<std::string, std::uint64_t> bytes_;
};

}  // namespace strait::reach
