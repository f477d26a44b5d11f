#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "framework/net/link.h"

namespace strait::stages {

// A process that is killed in the middle of whatever it does: after so many calls to its links,
// each of them throws what no room can take for a link that died.
class KilledLink final : public net::Link {
 public:
  KilledLink(std::unique_ptr<net::Link> link, std::shared_ptr<std::atomic<int>> calls)
      : link_(std::move(link)), calls_(std::move(calls)) {}
  void send(net::Frame frame) override {
    count();
    link_->send(std::move(frame));
    count();
  }
  net::Frame receive() override {
    while (true) {
      auto frame = receive_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
      if (frame) return std::move(*frame);
    }
  }
  std::optional<net::Frame> receive_until(std::chrono::steady_clock::time_point when) override {
    if (*calls_ < 0) die();
    auto frame = link_->receive_until(when);
    if (frame) count();
    return frame;
  }
  bool flush(std::chrono::steady_clock::time_point when) override { return link_->flush(when); }
  void abort(const net::LinkError& cause) override { link_->abort(cause); }
  net::LinkState state() const override { return link_->state(); }

 private:
  void count() {
    if (--*calls_ < 0) die();
  }
  [[noreturn]] void die() {
    link_->abort(net::LinkError(net::LinkError::Kind::lost, "killed by the test"));
    throw std::runtime_error("killed by the test");
  }

  std::unique_ptr<net::Link> link_;
  std::shared_ptr<std::atomic<int>> calls_;
};

}  // namespace strait::stages
