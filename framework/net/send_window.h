#pragma once

#include <deque>

#include "framework/net/frame_memory.h"
#include "framework/net/wire_format.h"

namespace strait::net {

// The sending half of one end: encoded frames from send() until the peer has them. Pure: no socket,
// no clock, no lock.
//
// Three positions advance through the stream: taken <= received <= sent. Memory is freed at
// received, room appears at taken, and a resend moves the cursor back to received.
class SendWindow {
 public:
  SendWindow(std::uint64_t window_bytes, std::uint64_t fragment_bytes)
      : window_bytes_(window_bytes), fragment_bytes_(fragment_bytes) {}

  // The window counts bytes. A frame larger than the window passes when no other is in flight.
  bool has_room_for(std::uint64_t frame_bytes) const;
  void push(Frame frame, FrameHash hash);  // hash: of the whole frame, computed without a lock

  // The next fragment to send. The payload is valid until acknowledge().
  struct Fragment {
    Position position;
    std::uint64_t frame_length = 0;
    FrameHash frame_hash;
    std::span<const std::byte> payload;
    bool again = false;  // it was sent before
  };
  bool has_fragment() const { return cursor_.sequence < first_ + frames_.size(); }
  std::uint64_t next_frame_bytes() const { return frames_[cursor_.sequence - first_].frame.size(); }
  Fragment next_fragment(std::uint64_t limit);  // limit: of the payload, not 0

  // What the peer claims to have received and taken, and when the last of it arrived. False: it
  // claims bytes that were never sent, and nothing was changed.
  bool acknowledge(const MessageHeader& claim);

  // The peer requests everything from `received` on, as a new attempt. An old request is ignored.
  // False: nothing to do.
  bool rewind(Position received, std::uint32_t attempt);

  // Bounds fragments by the size that the peer's hello announced.
  void limit_fragment(std::uint64_t fragment_bytes);

  Position cursor() const { return cursor_; }
  std::uint32_t attempt() const { return attempt_; }
  std::uint64_t outstanding_bytes() const { return outstanding_bytes_; }
  bool all_received() const { return frames_.empty(); }
  std::uint64_t pushed_bytes() const { return pushed_bytes_; }
  // Offsets in the stream, in bytes of frames: up to where all is received, and all is sent.
  std::uint64_t received_offset() const { return received_bytes_ + received_.offset; }
  std::uint64_t cursor_offset() const { return cursor_offset_; }
  // When the last byte before received_offset() arrived, by the peer's clock.
  std::chrono::nanoseconds arrived() const { return arrived_; }

 private:
  struct Held {
    Frame frame;
    FrameHash hash;
  };

  std::uint64_t window_bytes_;
  std::uint64_t fragment_bytes_;
  std::deque<Held> frames_;          // not yet received by the peer
  std::uint64_t first_ = 0;          // sequence of frames_.front()
  std::deque<std::uint64_t> sizes_;  // of the frames not yet taken
  std::uint64_t taken_ = 0;
  std::uint64_t outstanding_bytes_ = 0;
  std::uint64_t pushed_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;  // of whole frames
  Position cursor_;                   // next to send
  Position received_;                 // the peer has everything before it
  Position sent_;                     // the furthest position of the cursor
  std::uint64_t cursor_offset_ = 0;
  std::chrono::nanoseconds arrived_{0};
  std::uint32_t attempt_ = 0;
};

}  // namespace strait::net
