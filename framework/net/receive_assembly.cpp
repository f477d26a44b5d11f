#include "framework/net/receive_assembly.h"

namespace strait::net {
namespace {

// Until its bytes are here, a frame's length is only a claim of the sender. Memory beyond this
// grows with the bytes.
constexpr std::uint64_t kTrustedBytes = std::uint64_t{64} << 20;

}  // namespace

ReceiveAssembly::Outcome ReceiveAssembly::accept(const MessageHeader& header,
                                                 std::span<const std::byte> payload) {
  seen_attempt_ = std::max(seen_attempt_, header.attempt);
  // A resend may start before the gap; its old bytes are skipped.
  if (header.position < expected_) {
    if (!reaches_beyond(header, payload.size())) return Outcome::repeated;
    payload = payload.subspan(expected_.offset - header.position.offset);
  } else if (header.position > expected_) {
    // Older fragments are still on the way after a request; asking again for each would multiply
    // resends.
    if (header.attempt < asked_attempt_ || waits_for_attempt()) return Outcome::repeated;
    ask_again();
    return Outcome::gap;
  }
  if (expected_.offset == 0) {
    length_ = header.frame_length;
    hash_ = header.frame_hash;
    arriving_.clear();
    arriving_.reserve(std::min(length_, kTrustedBytes));
  } else if (header.frame_length != length_ || header.frame_hash != hash_) {
    // The fragment is intact and of this stream, but of another frame. One of the two is wrong, so
    // the frame starts again.
    expected_.offset = 0;
    ++corrupt_;
    ask_again();
    return Outcome::corrupt;
  }
  arriving_.insert(arriving_.end(), payload.begin(), payload.end());
  expected_.offset += payload.size();
  return expected_.offset < length_ ? Outcome::taken : finish_frame();
}

// Whether a resend, cut into other fragments than before, carries new bytes as well.
bool ReceiveAssembly::reaches_beyond(const MessageHeader& header, std::uint64_t bytes) const {
  return header.position.sequence == expected_.sequence &&
         header.position.offset + bytes > expected_.offset && header.frame_length == length_ &&
         header.frame_hash == hash_;
}

ReceiveAssembly::Outcome ReceiveAssembly::finish_frame() {
  // A frame is let out only with the right hash, even if each fragment's check was right.
  expected_.offset = 0;
  if (hash_frame(arriving_) != hash_) {
    ++corrupt_;
    ask_again();
    return Outcome::corrupt;
  }
  corrupt_ = 0;
  ++expected_.sequence;
  ready_bytes_ += arriving_.size() + kHeaderBytes;
  ready_.push_back(std::move(arriving_));
  arriving_ = Frame();
  return Outcome::complete;
}

void ReceiveAssembly::note_cursor(Position cursor, std::uint32_t attempt) {
  seen_attempt_ = std::max(seen_attempt_, attempt);
  if (cursor > expected_ && attempt == seen_attempt_ && !waits_for_attempt()) ask_again();
}

std::optional<Frame> ReceiveAssembly::take() {
  if (ready_.empty()) return std::nullopt;
  Frame frame = std::move(ready_.front());
  ready_.pop_front();
  ready_bytes_ -= frame.size() + kHeaderBytes;
  ++taken_;
  return frame;
}

std::uint64_t ReceiveAssembly::waiting_bytes() const {
  return ready_.empty() ? 0 : ready_bytes_ - (ready_.front().size() + kHeaderBytes);
}

}  // namespace strait::net
