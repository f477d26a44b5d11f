#include "framework/net/send_window.h"

#include <algorithm>

namespace strait::net {

bool SendWindow::has_room_for(std::uint64_t frame_bytes) const {
  if (sizes_.empty()) return true;
  // Each frame is counted with a fragment header, or empty frames would never fill the window.
  const std::uint64_t used = outstanding_bytes_ + sizes_.size() * kHeaderBytes;
  return used + frame_bytes + kHeaderBytes <= window_bytes_;
}

void SendWindow::push(Frame frame, FrameHash hash) {
  outstanding_bytes_ += frame.size();
  pushed_bytes_ += frame.size();
  sizes_.push_back(frame.size());
  frames_.push_back({std::move(frame), hash});
}

SendWindow::Fragment SendWindow::next_fragment(std::uint64_t limit) {
  const Held& held = frames_[cursor_.sequence - first_];
  Fragment fragment;
  fragment.position = cursor_;
  fragment.frame_length = held.frame.size();
  fragment.frame_hash = held.hash;
  const std::uint64_t length =
      std::min({fragment_bytes_, limit, fragment.frame_length - cursor_.offset});
  fragment.payload = std::span<const std::byte>(held.frame).subspan(cursor_.offset, length);
  fragment.again = cursor_ < sent_;
  cursor_.offset += length;
  cursor_offset_ += length;
  if (cursor_.offset == fragment.frame_length) cursor_ = {cursor_.sequence + 1, 0};
  sent_ = std::max(sent_, cursor_);
  return fragment;
}

bool SendWindow::acknowledge(const MessageHeader& claim) {
  const Position received = claim.received;
  const std::uint64_t taken = claim.taken;
  if (received > sent_ || taken > received.sequence) return false;
  if (received.sequence >= first_ && received.sequence < first_ + frames_.size() &&
      received.offset >=
          std::max<std::uint64_t>(frames_[received.sequence - first_].frame.size(), 1)) {
    return false;  // beyond the end of that frame
  }
  // A position not beyond the known one comes from a message that was overtaken.
  if (received > received_) {
    received_ = received;
    arrived_ = std::chrono::nanoseconds(claim.arrived);
  }
  while (first_ < received_.sequence) {
    received_bytes_ += frames_.front().frame.size();
    frames_.pop_front();
    ++first_;
  }
  // The peer may have got bytes of an earlier attempt; they need not be sent again.
  cursor_ = std::max(cursor_, received_);
  cursor_offset_ = std::max(cursor_offset_, received_offset());
  while (taken_ < taken) {
    outstanding_bytes_ -= sizes_.front();
    sizes_.pop_front();
    ++taken_;
  }
  return true;
}

bool SendWindow::rewind(Position received, std::uint32_t attempt) {
  if (attempt <= attempt_) return false;
  attempt_ = attempt;
  // At the earliest, the oldest frame that is still here. This may be before what was acknowledged
  // of that frame, if the receiver found its hash wrong.
  received_ = std::max(received, Position{first_, 0});
  cursor_ = received_;
  cursor_offset_ = received_offset();
  return true;
}

void SendWindow::limit_fragment(std::uint64_t fragment_bytes) {
  fragment_bytes_ = std::min(fragment_bytes_, std::max<std::uint64_t>(fragment_bytes, 1));
}

}  // namespace strait::net
