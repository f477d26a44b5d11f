#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/store/file_descriptor.h"

namespace strait::reach {

// Two connections of which each gets the other's bytes. Holds a bounded amount: whoever reads
// slowly slows down who sends. Belongs to one thread, which polls for what it waits for and moves
// it. Either connection may still be on its way: what is wrong with it shows at the first move.
class Splice {
 public:
  // `ahead` goes to `far` before all that comes from `near`.
  Splice(store::FileDescriptor near, store::FileDescriptor far,
         std::span<const std::byte> ahead = {});

  std::array<pollfd, 2> waits_for() const;

  // Moves what can be moved now. False: an end is closed or lost, and all that it had said was
  // handed on as far as it could be; destroy the splice.
  bool move();

  std::uint64_t bytes() const { return near_.bytes + far_.bytes; }  // moved so far, both ways

 private:
  // What was read from one side and not yet written to the other.
  struct Held {
    std::vector<std::byte> memory;
    std::size_t first = 0;
    std::size_t last = 0;
    bool ended = false;  // nothing more will come
    std::uint64_t bytes = 0;

    bool has_room() const { return !ended && last < memory.size(); }
    bool empty() const { return first == last; }
  };

  static bool fill(int from, Held& held);
  static bool drain(int to, Held& held);

  store::FileDescriptor near_socket_;
  store::FileDescriptor far_socket_;
  Held near_;  // from near, for far
  Held far_;
};

}  // namespace strait::reach
