#include "framework/sync/relayed_links.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <utility>

namespace strait::sync {
namespace {

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
