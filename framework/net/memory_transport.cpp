#include "framework/net/memory_transport.h"

#include <atomic>

#include "framework/bytes.h"
#include "framework/fields/byte_fields.h"

namespace strait::net {
namespace {

// The token is at the start, and the ring begins on a cache line.
constexpr std::size_t kRingAt = 64;
constexpr std::size_t kMemoryBytes = kRingAt + MemoryTransport::kRingBytes;

// Neither magic is the start of the other kind of message.
constexpr std::uint32_t kReferenceMagic = 0x4D525453;  // "STRM" as bytes

struct Reference {
  std::uint32_t magic = kReferenceMagic;
  std::uint32_t bytes = 0;   // of the fragment with its header
  std::uint64_t offset = 0;  // in the ring
};
constexpr std::size_t kReferenceBytes = sizeof(Reference) + kHeaderBytes;

struct Announcement {
  SharedMemoryKey key;
  bool reads = false;  // its sender has opened the receiver's memory
};

void describe(auto& f, fields::Is<Announcement> auto& m) {
  f("process", m.key.process), f("descriptor", m.key.descriptor), f("token", m.key.token);
  f("reads", m.reads);
}

}  // namespace

// An empty ring is used from its start again: memory that was just used is in the caches.
std::uint64_t RingBlocks::room() const {
  if (used_.empty()) return bytes_;
  const std::uint64_t next = used_.back().past;
  const std::uint64_t oldest = used_.front().begin;
  return wrapped() ? oldest - next : std::max(bytes_ - next, oldest);
}

std::uint64_t RingBlocks::take(std::uint64_t bytes, std::uint64_t end) {
  std::uint64_t begin = 0;
  if (!used_.empty() && (wrapped() || bytes_ - used_.back().past >= bytes)) {
    begin = used_.back().past;
  }
  used_.push_back({begin, begin + bytes, end});
  return begin;
}

void RingBlocks::confirm(std::uint64_t offset) {
  while (!used_.empty() && used_.front().end <= offset) used_.pop_front();
}

MemoryTransport::MemoryTransport() : own_(kMemoryBytes) {}

std::vector<std::byte> MemoryTransport::announcement() const {
  return fields::to_bytes<std::vector<std::byte>>(Announcement{own_.key(), peers_.has_value()});
}

bool MemoryTransport::accept(std::span<const std::byte> announcement) {
  Announcement theirs;
  try {
    theirs = fields::from_bytes<Announcement>(announcement, "announcement of memory");
  } catch (const fields::MessageError& error) {
    throw LinkError(LinkError::Kind::refused, error.what());
  }
  peer_reads_ = theirs.reads;
  if (peers_) return false;
  peers_.emplace(theirs.key, kMemoryBytes, SharedMemory::Access::read);
  return true;
}

void MemoryTransport::confirm(std::uint32_t attempt, std::uint64_t offset) {
  // References of a former attempt that still arrive may find other bytes. Their check is wrong
  // then, and the receiver drops them.
  if (std::exchange(attempt_, attempt) != attempt) blocks_.clear();
  blocks_.confirm(offset);
}

std::uint64_t MemoryTransport::payload_limit(std::uint64_t wanted) const {
  const std::uint64_t limit = std::min(wanted, kMostPayload);
  return blocks_.room() >= limit + kHeaderBytes ? limit : 0;
}

void MemoryTransport::write(const MessageHeader& header, std::span<const std::byte> payload,
                            std::uint64_t end, zmq::message_t& reference) {
  const Reference where{.bytes = static_cast<std::uint32_t>(kHeaderBytes + payload.size()),
                        .offset = blocks_.take(kHeaderBytes + payload.size(), end)};
  const std::span<std::byte> block(own_.begin() + kRingAt + where.offset, where.bytes);
  std::memcpy(block.data() + kHeaderBytes, payload.data(), payload.size());
  seal(header, block);
  reference.rebuild(kReferenceBytes);
  auto* const message = static_cast<std::byte*>(reference.data());
  std::memcpy(message, &where, sizeof where);
  std::memcpy(message + sizeof where, block.data(), kHeaderBytes);
  // The connection orders the two processes; this keeps the compiler from moving the copy.
  std::atomic_thread_fence(std::memory_order_release);
}

std::span<const std::byte> MemoryTransport::resolve(std::span<const std::byte> message) {
  if (message.size() != kReferenceBytes) return message;
  ByteReader reader(message);
  const auto where = reader.value<Reference>();
  if (where.magic != kReferenceMagic) return message;
  const bool fits = where.bytes > kHeaderBytes && where.bytes <= kRingBytes &&
                    where.offset <= kRingBytes - where.bytes;
  if (!peers_ || !fits) return {};
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::span<const std::byte> block(peers_->begin() + kRingAt + where.offset, where.bytes);
  copy_.resize(where.bytes);
  // The header is that of the connection, which proves who sent it.
  std::memcpy(copy_.data(), message.data() + sizeof where, kHeaderBytes);
  std::memcpy(copy_.data() + kHeaderBytes, block.data() + kHeaderBytes, where.bytes - kHeaderBytes);
  return copy_;
}

}  // namespace strait::net
