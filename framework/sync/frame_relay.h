#pragma once

#include <atomic>
#include <memory>

#include "framework/mutex.h"
#include "framework/net/frame_memory.h"
#include "framework/net/link.h"
#include "framework/net/link_error.h"
#include "framework/sync/membership.h"
#include "framework/sync/shared_memory_group.h"

namespace strait::sync {

// Frames that one member of a group receives from other groups, for the other members, through
// memory that they share: a stream of bytes of one writer, which each reader reads in whole.
//
// Threads: one at a time writes or reads; abort() may be called by any. A relay that was aborted,
// and one of a writer that is gone, answers every later call with the same error.
class FrameRelay {
 public:
  // The memory of the writer, whose key the readers get.
  static net::SharedMemory memory_for(std::size_t readers);
  static net::SharedMemory open(net::SharedMemoryKey key, std::size_t readers,
                                std::uint32_t writer);

  // Of the writer, and of a reader: `mine` is its index.
  FrameRelay(net::SharedMemory memory, std::size_t readers);
  FrameRelay(net::SharedMemory memory, std::size_t readers, std::size_t mine);
  // Of the writer: readers get what was written, then LinkError (lost). Of a reader: the writer no
  // longer waits for it.
  ~FrameRelay();

  // Waits until all readers have room for it. `source`: where it comes from.
  void write(std::uint32_t source, std::span<const std::byte> frame);

  struct Relayed {
    std::uint32_t source = 0;
    net::Frame frame;
  };
  // The next frame of any source; nullopt: it is not whole at the deadline.
  std::optional<Relayed> read(std::chrono::steady_clock::time_point deadline);

  void abort(const net::LinkError& cause) STRAIT_EXCLUDES(mutex_);

 private:
  struct Progress;
  struct Header {
    std::uint32_t source = 0;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;
  };

  Progress& progress() const;
  std::atomic<std::uint64_t>& read_by(std::size_t reader) const;
  std::byte* ring() const;
  // Of the stream from `at` on, the part before the ring's end.
  std::span<std::byte> piece(std::uint64_t at, std::size_t bytes) const;
  std::uint64_t slowest() const;
  void put(std::span<const std::byte> bytes);
  // Appends to the frame, as far as it has come. False: the deadline has passed.
  bool take(std::span<std::byte> to, std::size_t& taken,
            std::chrono::steady_clock::time_point deadline);
  void check() const STRAIT_EXCLUDES(mutex_);

  const net::SharedMemory memory_;
  const std::size_t readers_;
  const std::optional<std::size_t> mine_;  // nullopt: the writer
  // A frame that is read.
  Header header_;
  std::size_t header_taken_ = 0;
  net::Frame frame_;
  std::size_t frame_taken_ = 0;

  std::atomic<bool> aborted_ = false;
  mutable Mutex mutex_;
  std::optional<net::LinkError> cause_ STRAIT_GUARDED_BY(mutex_);
};

// The links between the leaders of groups as every member of a group uses them, so that all of its
// engines see the same frames and come to the same bits. On the leader they are `links`, by
// replica, and what they receive goes to the relay, too. On the other members they receive what the
// leader has received, and what is sent over them goes nowhere: the leader sends the same.
//
// The relay outlives the links. Threads: one uses all links of a member; abort() and state() may be
// called by any.
std::vector<std::unique_ptr<net::Link>> leader_links(std::vector<std::unique_ptr<net::Link>> links,
                                                     FrameRelay& relay);
// `leaders`: of all groups. By replica, null at the own leader and at those that lead none.
// `to_leader`: what a follower waits for. It outlives the links.
std::vector<std::unique_ptr<net::Link>> follower_links(const Membership& leaders, FrameRelay& relay,
                                                       const net::Link* to_leader);

}  // namespace strait::sync
