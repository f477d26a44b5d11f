#pragma once

#include <atomic>
#include <memory>

#include "framework/net/link.h"

namespace strait::net {

// A link that dies after a number of sends and receives of all links that share the count, before
// or after what it was asked for: in the middle of whatever its owner did.
class DyingLink final : public Link {
 public:
  enum class Death {
    cut,     // the path: the link is lost, as its owner may expect of any
    killed,  // the owner: each of its links throws what no room can take for a link that died
  };
  using Calls = std::shared_ptr<std::atomic<int>>;

  DyingLink(std::unique_ptr<Link> link, Calls left, Death death)
      : link_(std::move(link)), left_(std::move(left)), death_(death) {}

  bool send_until(Frame& frame, std::chrono::steady_clock::time_point when) override {
    if (*left_ < 0) die();
    const bool sent = link_->send_until(frame, when);
    if (sent) count();
    return sent;
  }
  // Asks again and again, so that an owner who is killed elsewhere does not wait here.
  Frame receive() override {
    count();
    while (true) {
      auto frame = receive_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
      if (frame) return std::move(*frame);
    }
  }
  std::optional<Frame> receive_until(std::chrono::steady_clock::time_point when) override {
    if (*left_ < 0) die();
    auto frame = link_->receive_until(when);
    if (frame) count();
    return frame;
  }
  bool flush(std::chrono::steady_clock::time_point when) override { return link_->flush(when); }
  void abort(const LinkError& cause) override { link_->abort(cause); }
  LinkState state() const override { return link_->state(); }

 private:
  void count() {
    if (--*left_ < 0) die();
  }
  void die() {
    link_->abort(LinkError(LinkError::Kind::lost, "cut by the test"));
    if (death_ == Death::killed) throw std::runtime_error("killed by the test");
  }

  std::unique_ptr<Link> link_;
  Calls left_;
  Death death_;
};

}  // namespace strait::net
