#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "framework/net/frame_memory.h"
#include "framework/net/wire_format.h"

namespace strait::net {

// The receiving half of one end: puts fragments together and releases each frame once, in order,
// and only if its hash is right. Pure: no socket, no clock, no lock.
//
// Fragments come over one or several flows. Each flow keeps its order, so missing bytes may still
// come until every flow has carried something later. Then there is a gap, as after a cut.
// Everything from the gap on is requested again, as a new attempt. What came too early is kept, and
// confirmed as soon as the gap is filled. Fragments of older attempts cause no request, so that
// late ones cause no storm of resends.
class ReceiveAssembly {
 public:
  enum class Outcome : std::uint8_t {
    taken,     // the next bytes of the frame
    complete,  // the last bytes of the frame
    repeated,  // already known, or of an older attempt
    early,     // earlier bytes are missing, and may still come
    gap,       // earlier bytes are missing and will not come; ask_again() was called
    corrupt,   // the frame's hash is wrong; the whole frame is requested again
  };
  Outcome accept(const MessageHeader& header, std::span<const std::byte> payload,
                 unsigned flow = 0);

  // A status: the peer claims to have sent everything before its position in this attempt.
  void note_cursor(const MessageHeader& status, unsigned flow);

  // Starts a new attempt; the caller sends asked_attempt() and expected() to the peer.
  void ask_again() { asked_attempt_ = std::max(asked_attempt_, seen_attempt_) + 1; }
  bool waits_for_attempt() const { return asked_attempt_ > seen_attempt_; }
  std::uint32_t asked_attempt() const { return asked_attempt_; }

  std::optional<Frame> take();
  bool holds_early() const { return !early_.empty(); }

  Position expected() const { return expected_; }
  std::uint64_t taken() const { return taken_; }
  // Bytes of complete frames that take() has not returned. The first is left out, since one frame
  // of any size may wait.
  std::uint64_t waiting_bytes() const;
  std::uint64_t awaited_bytes() const { return expected_.offset == 0 ? 0 : length_; }
  std::uint32_t corrupt_in_a_row() const { return corrupt_; }

 private:
  // The most that is kept of what comes too early, headers included.
  static constexpr std::uint64_t kMostEarly = std::uint64_t{64} << 20;

  struct Early {
    MessageHeader header;
    Frame payload;
  };

  void note_flow(const MessageHeader& header, unsigned flow);
  bool lost() const;
  Outcome keep(const MessageHeader& header, std::span<const std::byte> payload);
  Outcome append(const MessageHeader& header, std::span<const std::byte> payload);
  Outcome append_early(Outcome outcome);
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

  std::map<Position, Early> early_;
  std::uint64_t early_bytes_ = 0;
  // Of the newest attempt: the flows that it uses, and how far each has got.
  std::uint8_t flows_ = 0;
  std::array<Position, kMaxFlows> seen_{};
};

}  // namespace strait::net
