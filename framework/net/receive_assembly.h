#pragma once

#include <algorithm>
#include <deque>

#include "framework/net/frame_memory.h"
#include "framework/net/wire_format.h"

namespace strait::net {

// The receiving half of one end: puts fragments together and releases each frame once, in order,
// and only if its hash is right. Pure: no socket, no clock, no lock.
//
// A wire that was cut, or that loses and reorders, leaves a gap. Everything from the gap on is then
// requested again, as a new attempt. Fragments of older attempts that do not fit are dropped
// without another request, so that late ones cause no storm of resends.
class ReceiveAssembly {
 public:
  enum class Outcome : std::uint8_t {
    taken,     // the next bytes of the frame
    complete,  // the last bytes of the frame
    repeated,  // already known, or of an older attempt
    gap,       // earlier bytes are missing; it was dropped and ask_again() called
    corrupt,   // the frame's hash is wrong; the whole frame is requested again
  };
  Outcome accept(const MessageHeader& header, std::span<const std::byte> payload);

  // The peer claims to have sent everything before `cursor` in this attempt.
  void note_cursor(Position cursor, std::uint32_t attempt);

  // Starts a new attempt; the caller sends asked_attempt() and expected() to the peer.
  void ask_again() { asked_attempt_ = std::max(asked_attempt_, seen_attempt_) + 1; }
  bool waits_for_attempt() const { return asked_attempt_ > seen_attempt_; }
  std::uint32_t asked_attempt() const { return asked_attempt_; }

  std::optional<Frame> take();

  Position expected() const { return expected_; }
  std::uint64_t taken() const { return taken_; }
  // Bytes of complete frames that take() has not returned. The first is left out, since one frame
  // of any size may wait.
  std::uint64_t waiting_bytes() const;
  std::uint64_t awaited_bytes() const { return expected_.offset == 0 ? 0 : length_; }
  std::uint32_t corrupt_in_a_row() const { return corrupt_; }

 private:
  bool reaches_beyond(const MessageHeader& header, std::uint64_t bytes) const;
  Outcome finish_frame();

  Position expected_;
  std::uint64_t length_ = 0;  // of the frame that is arriving, once its first fragment has arrived
  FrameHash hash_;
  Frame arriving_;
  std::deque<Frame> ready_;
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t taken_ = 0;
  std::uint32_t seen_attempt_ = 0;
  std::uint32_t asked_attempt_ = 0;
  std::uint32_t corrupt_ = 0;
};

}  // namespace strait::net
