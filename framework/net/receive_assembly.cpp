#include "framework/net/receive_assembly.h"

#include "framework/bytes.h"

namespace strait::net {
namespace {

// Until its bytes are here, a frame's length is only a claim of the sender. Memory beyond this
// grows with the bytes.
constexpr std::uint64_t kTrustedBytes = std::uint64_t{64} << 20;

}  // namespace

ReceiveAssembly::Outcome ReceiveAssembly::accept(const MessageHeader& header,
                                                 std::span<const std::byte> payload,
                                                 unsigned flow) {
  note_flow(header, flow);
  if (header.position > expected_) return keep(header, payload);
  return append_early(append(header, payload));
}

void ReceiveAssembly::note_flow(const MessageHeader& header, unsigned flow) {
  if (header.attempt < seen_attempt_) return;
  if (header.attempt > seen_attempt_) {
    flows_ = 0;
    seen_ = {};
  }
  seen_attempt_ = header.attempt;
  flows_ |= header.flows;
  seen_.at(flow) = std::max(seen_.at(flow), header.position);
}

// Whether the missing bytes can come on no flow.
bool ReceiveAssembly::lost() const {
  for (unsigned flow = 0; flow < kMaxFlows; ++flow) {
    if ((flows_ >> flow & 1U) != 0 && seen_.at(flow) <= expected_) return false;
  }
  return true;
}

ReceiveAssembly::Outcome ReceiveAssembly::keep(const MessageHeader& header,
                                               std::span<const std::byte> payload) {
  const std::uint64_t bytes = payload.size() + kHeaderBytes;
  if (early_bytes_ + bytes <= kMostEarly) {
    const auto [kept, is_new] = early_.try_emplace(header.position);
    // A resend may be cut into larger fragments than before.
    if (is_new || kept->second.payload.size() < payload.size()) {
      early_bytes_ += is_new ? bytes : payload.size() - kept->second.payload.size();
      kept->second = {header, Frame(payload.begin(), payload.end())};
    }
  }
  // Older fragments are still on the way after a request; asking again for each would multiply
  // resends.
  if (header.attempt < asked_attempt_ || waits_for_attempt()) return Outcome::repeated;
  if (!lost()) return Outcome::early;
  ask_again();
  return Outcome::gap;
}

// What was kept and fits after what has just arrived.
ReceiveAssembly::Outcome ReceiveAssembly::append_early(Outcome outcome) {
  while ((outcome == Outcome::taken || outcome == Outcome::complete) && !early_.empty() &&
         early_.begin()->first <= expected_) {
    const auto next = early_.extract(early_.begin());
    early_bytes_ -= next.mapped().payload.size() + kHeaderBytes;
    const Outcome appended = append(next.mapped().header, next.mapped().payload);
    if (appended != Outcome::repeated) outcome = appended;
  }
  if (outcome == Outcome::corrupt) {  // by any fragment, so none is trusted
    early_.clear();
    early_bytes_ = 0;
  }
  return outcome;
}

ReceiveAssembly::Outcome ReceiveAssembly::append(const MessageHeader& header,
                                                 std::span<const std::byte> payload) {
  // A resend may start before the gap; its old bytes are skipped.
  if (header.position < expected_) {
    if (!reaches_beyond(header, payload.size())) return Outcome::repeated;
    payload = payload.subspan(expected_.offset - header.position.offset);
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
  append_bytes(arriving_, payload);
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

void ReceiveAssembly::note_cursor(const MessageHeader& status, unsigned flow) {
  note_flow(status, flow);
  const bool newest = status.attempt == seen_attempt_ && !waits_for_attempt();
  if (status.position > expected_ && newest && lost()) ask_again();
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
