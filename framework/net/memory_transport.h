#pragma once

#include <deque>
#include <optional>
#include <zmq.hpp>

#include "framework/net/frame_memory.h"
#include "framework/net/shared_memory.h"
#include "framework/net/wire_format.h"

namespace strait::net {

// The blocks of a ring that hold fragments until the peer has them. Pure.
class RingBlocks {
 public:
  explicit RingBlocks(std::uint64_t bytes) : bytes_(bytes) {}

  // The largest block that there is room for now.
  std::uint64_t room() const;
  // Where the block begins; at most room(). It is in use until everything before `end` is
  // confirmed, an offset in the stream that never falls.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t end);
  void confirm(std::uint64_t offset);
  // All are sent again, in other blocks.
  void clear() { used_.clear(); }

 private:
  struct Block {
    std::uint64_t begin = 0;
    std::uint64_t past = 0;  // where the next one may begin
    std::uint64_t end = 0;   // in the stream
  };
  bool wrapped() const { return used_.back().begin < used_.front().begin; }

  const std::uint64_t bytes_;
  std::deque<Block> used_;
};

// Carries large fragments of one end through memory that both processes of a link share. Each end
// writes into memory of its own, which the peer maps for reading. The connection carries a
// reference: where the fragment is, and its header. So the connection alone decides on losses,
// order and confirmations, and LinkProtocol does not know of the memory.
//
// Nothing in memory is trusted: a fragment is copied out before it is looked at, within bounds
// that the reference cannot move, and its check covers the copy. The owner serialises calls.
class MemoryTransport {
 public:
  static constexpr std::uint64_t kRingBytes = std::uint64_t{8} << 20;
  // Smaller fragments go over the connection, which costs no more.
  static constexpr std::uint64_t kLeastPayload = 4096;
  // Large enough for the connection to cost nothing, and small enough for both ends to copy at the
  // same time.
  static constexpr std::uint64_t kMostPayload = std::uint64_t{512} << 10;

  MemoryTransport();  // std::system_error: there is no memory

  // For the peer: where this end's memory is, and whether this end reads the peer's.
  std::vector<std::byte> announcement() const;
  // Of the peer. True: the own announcement has changed. LinkError or std::system_error: its memory
  // cannot be opened.
  bool accept(std::span<const std::byte> announcement);
  bool peer_reads() const { return peer_reads_; }

  // Up to `offset` of this attempt the peer has the stream, so their blocks are free. All blocks of
  // former attempts are.
  void confirm(std::uint32_t attempt, std::uint64_t offset);
  // The largest payload of a fragment that is written now; 0: what is in memory must be confirmed.
  std::uint64_t payload_limit(std::uint64_t wanted) const;
  // Writes a fragment, and the reference to it. `end`: its end in the stream.
  void write(const MessageHeader& header, std::span<const std::byte> payload, std::uint64_t end,
             zmq::message_t& reference);

  // The fragment that a reference stands for, valid until the next call. Any other message as it
  // is. Empty: the reference points to nothing.
  std::span<const std::byte> resolve(std::span<const std::byte> message);

 private:
  SharedMemory own_;
  std::optional<SharedMemory> peers_;
  bool peer_reads_ = false;
  RingBlocks blocks_{kRingBytes};
  std::uint32_t attempt_ = 0;
  Frame copy_;
};

}  // namespace strait::net
