#include "framework/sync/frame_relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <thread>

namespace strait::sync {
namespace {

// Much more than a part of a round, so that the writer seldom waits for a reader.
constexpr std::size_t kRingBytes = std::size_t{8} << 20;
// The pause between two looks at the progress of others. It grows while nothing happens, because
// then a slow link decides when the next frame comes.
constexpr std::chrono::microseconds kFirstLook{50};
constexpr std::chrono::microseconds kLastLook{1000};

// The progress of a reader that is gone: it holds the writer up no more.
constexpr std::uint64_t kLeft = std::numeric_limits<std::uint64_t>::max();

// Waits between looks.
class Pause {
 public:
  void wait() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, kLastLook);
  }

 private:
  std::chrono::microseconds pause_ = kFirstLook;
};

using Deadline = std::chrono::steady_clock::time_point;

class LeaderLink final : public net::Link {
 public:
  LeaderLink(std::unique_ptr<net::Link> link, std::uint32_t source, FrameRelay& relay)
      : link_(std::move(link)), source_(source), relay_(relay) {}

  bool send_until(net::Frame& frame, Deadline deadline) override {
    return link_->send_until(frame, deadline);
  }
  net::Frame receive() override { return relayed(link_->receive()); }
  std::optional<net::Frame> receive_until(Deadline deadline) override {
    auto frame = link_->receive_until(deadline);
    if (frame) relay_.write(source_, *frame);
    return frame;
  }
  bool flush(Deadline deadline) override { return link_->flush(deadline); }
  void abort(const net::LinkError& cause) override {
    link_->abort(cause);
    relay_.abort(cause);
  }
  net::LinkState state() const override { return link_->state(); }
  const net::Link* underlying() const override { return link_.get(); }

 private:
  net::Frame relayed(net::Frame frame) {
    relay_.write(source_, frame);
    return frame;
  }

  const std::unique_ptr<net::Link> link_;
  const std::uint32_t source_;
  FrameRelay& relay_;
};

// Frames that were read while one of another source was asked for.
struct RelayedFrames {
  explicit RelayedFrames(FrameRelay& from) : relay(from) {}
  FrameRelay& relay;
  std::map<std::uint32_t, std::deque<net::Frame>> waiting;  // by source
};

class FollowerLink final : public net::Link {
 public:
  FollowerLink(std::uint32_t leader, const net::Link* to_leader, std::uint32_t source,
               std::shared_ptr<RelayedFrames> frames)
      : to_leader_(to_leader), source_(source), frames_(std::move(frames)) {
    state_.name = fmt::format("replica {}, relayed by replica {}", source, leader);
    state_.peer = fmt::format("replica {}", source);
    state_.connected = true;
  }

  bool send_until(net::Frame& /*frame*/, Deadline /*deadline*/) override { return true; }
  net::Frame receive() override { return *receive_until(Deadline::max()); }
  std::optional<net::Frame> receive_until(Deadline deadline) override {
    std::deque<net::Frame>& mine = frames_->waiting[source_];
    while (mine.empty()) {
      auto next = frames_->relay.read(deadline);
      if (!next) return std::nullopt;
      frames_->waiting[next->source].push_back(std::move(next->frame));
    }
    net::Frame frame = std::move(mine.front());
    mine.pop_front();
    return frame;
  }
  bool flush(Deadline /*deadline*/) override { return true; }
  void abort(const net::LinkError& cause) override { frames_->relay.abort(cause); }
  net::LinkState state() const override { return state_; }
  const net::Link* underlying() const override { return to_leader_; }

 private:
  const net::Link* const to_leader_;
  const std::uint32_t source_;
  const std::shared_ptr<RelayedFrames> frames_;
  net::LinkState state_;
};

}  // namespace

// The writer's is at the start of the memory; the readers' and the ring follow.
struct FrameRelay::Progress {
  std::uint64_t token;  // of SharedMemory
  // A cache line each: otherwise each look of a reader would slow the writer.
  alignas(64) std::atomic<std::uint64_t> written;  // bytes of the stream; of readers: read
  std::atomic<std::uint32_t> ended;                // the writer is gone
};

net::SharedMemory FrameRelay::memory_for(std::size_t readers) {
  return net::SharedMemory((readers + 1) * sizeof(Progress) + kRingBytes);
}

net::SharedMemory FrameRelay::open(net::SharedMemoryKey key, std::size_t readers,
                                   std::uint32_t writer) {
  return open_memory_of(writer, key, (readers + 1) * sizeof(Progress) + kRingBytes);
}

FrameRelay::FrameRelay(net::SharedMemory memory, std::size_t readers)
    : memory_(std::move(memory)), readers_(readers) {}

FrameRelay::FrameRelay(net::SharedMemory memory, std::size_t readers, std::size_t mine)
    : memory_(std::move(memory)), readers_(readers), mine_(mine) {}

FrameRelay::~FrameRelay() {
  if (mine_) {
    read_by(*mine_).store(kLeft, std::memory_order_release);
  } else {
    progress().ended.store(1, std::memory_order_release);
  }
}

FrameRelay::Progress& FrameRelay::progress() const {
  return *reinterpret_cast<Progress*>(memory_.begin());
}

std::atomic<std::uint64_t>& FrameRelay::read_by(std::size_t reader) const {
  return reinterpret_cast<Progress*>(memory_.begin())[reader + 1].written;
}

std::byte* FrameRelay::ring() const { return memory_.begin() + (readers_ + 1) * sizeof(Progress); }

std::span<std::byte> FrameRelay::piece(std::uint64_t at, std::size_t bytes) const {
  const std::size_t first = at % kRingBytes;
  return {ring() + first, std::min(bytes, kRingBytes - first)};
}

std::uint64_t FrameRelay::slowest() const {
  // Relaxed: only the writer changes it, and it is the caller.
  std::uint64_t least = progress().written.load(std::memory_order_relaxed);
  for (std::size_t reader = 0; reader < readers_; ++reader) {
    least = std::min(least, read_by(reader).load(std::memory_order_acquire));
  }
  return least;
}

void FrameRelay::check() const {
  if (!aborted_) return;
  const MutexLock lock(mutex_);
  throw net::LinkError(*cause_);
}

void FrameRelay::abort(const net::LinkError& cause) {
  const MutexLock lock(mutex_);
  if (!cause_) cause_ = cause;
  aborted_ = true;
}

void FrameRelay::put(std::span<const std::byte> bytes) {
  std::uint64_t at = progress().written.load(std::memory_order_relaxed);
  Pause pause;
  while (!bytes.empty()) {
    check();
    const std::uint64_t room = slowest() + kRingBytes - at;
    if (room == 0) {
      pause.wait();
      continue;
    }
    const std::span<std::byte> to = piece(at, std::min<std::uint64_t>(room, bytes.size()));
    std::ranges::copy(bytes.first(to.size()), to.begin());
    bytes = bytes.subspan(to.size());
    at += to.size();
    // Release after the copy: a reader that sees the new count sees the bytes.
    progress().written.store(at, std::memory_order_release);
  }
}

void FrameRelay::write(std::uint32_t source, std::span<const std::byte> frame) {
  const Header header{source, 0, frame.size()};
  put(std::as_bytes(std::span(&header, 1)));
  put(frame);
}

bool FrameRelay::take(std::span<std::byte> to, std::size_t& taken,
                      std::chrono::steady_clock::time_point deadline) {
  std::atomic<std::uint64_t>& read = read_by(*mine_);
  Pause pause;
  while (taken < to.size()) {
    check();
    const std::uint64_t at = read.load(std::memory_order_relaxed);
    // Before the bytes: what the writer wrote before it ended is still read.
    const bool ended = progress().ended.load(std::memory_order_acquire) != 0;
    const std::uint64_t here = progress().written.load(std::memory_order_acquire) - at;
    if (here > 0) {
      const std::span<const std::byte> from =
          piece(at, std::min<std::uint64_t>(here, to.size() - taken));
      std::ranges::copy(from, to.begin() + static_cast<std::ptrdiff_t>(taken));
      taken += from.size();
      // The same for the writer, which overwrites what was read.
      read.store(at + from.size(), std::memory_order_release);
      continue;
    }
    if (ended) {
      abort({net::LinkError::Kind::lost,
             "the replica of this host that exchanges with other hosts has ended"});
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    } else {
      pause.wait();
    }
  }
  return true;
}

std::optional<FrameRelay::Relayed> FrameRelay::read(
    std::chrono::steady_clock::time_point deadline) {
  if (!take(std::as_writable_bytes(std::span(&header_, 1)), header_taken_, deadline)) {
    return std::nullopt;
  }
  // Members and not locals: a deadline may end the read in the middle of a frame.
  frame_.resize(header_.bytes);
  if (!take(frame_, frame_taken_, deadline)) return std::nullopt;
  header_taken_ = frame_taken_ = 0;
  return Relayed{header_.source, std::exchange(frame_, {})};
}

std::vector<std::unique_ptr<net::Link>> leader_links(std::vector<std::unique_ptr<net::Link>> links,
                                                     FrameRelay& relay) {
  for (std::uint32_t source = 0; source < links.size(); ++source) {
    if (links[source] == nullptr) continue;
    links[source] = std::make_unique<LeaderLink>(std::move(links[source]), source, relay);
  }
  return links;
}

std::vector<std::unique_ptr<net::Link>> follower_links(const Membership& leaders, FrameRelay& relay,
                                                       const net::Link* to_leader) {
  const auto frames = std::make_shared<RelayedFrames>(relay);
  std::vector<std::unique_ptr<net::Link>> links(leaders.members.back() + 1);
  for (std::size_t i = 0; i < leaders.count(); ++i) {
    if (i == leaders.mine) continue;
    const std::uint32_t source = leaders.members[i];
    links[source] =
        std::make_unique<FollowerLink>(leaders.members[leaders.mine], to_leader, source, frames);
  }
  return links;
}

}  // namespace strait::sync
