#include "framework/net/replaceable_link.h"

#include <fmt/format.h>

namespace strait::net {

ReplaceableLink::ReplaceableLink(std::string name, std::string peer, std::unique_ptr<Link> link)
    : link_(std::move(link)) {
  before_.name = std::move(name);
  before_.peer = std::move(peer);
}

void ReplaceableLink::replace(std::unique_ptr<Link> link) {
  std::shared_ptr<Link> former;
  {
    // Only the exchange needs the lock. abort() may wait for the net thread, and callers hold
    // copies of the pointer.
    const MutexLock lock(mutex_);
    former = std::exchange(link_, std::move(link));
    if (former == nullptr) return;
    const LinkState carried = former->state();
    before_.sent_bytes += carried.sent_bytes;
    before_.received_bytes += carried.received_bytes;
  }
  former->abort(LinkError(LinkError::Kind::aborted, "the peer was replaced by another process"));
}

std::shared_ptr<Link> ReplaceableLink::there() const {
  const MutexLock lock(mutex_);
  if (link_ != nullptr) return link_;
  throw LinkError(LinkError::Kind::lost,
                  fmt::format("{}: {} is not connected", before_.name, before_.peer));
}

bool ReplaceableLink::send_until(Frame& frame, std::chrono::steady_clock::time_point deadline) {
  return there()->send_until(frame, deadline);
}

Frame ReplaceableLink::receive() { return there()->receive(); }

std::optional<Frame> ReplaceableLink::receive_until(
    std::chrono::steady_clock::time_point deadline) {
  return there()->receive_until(deadline);
}

bool ReplaceableLink::flush(std::chrono::steady_clock::time_point deadline) {
  return there()->flush(deadline);
}

void ReplaceableLink::abort(const LinkError& cause) {
  std::shared_ptr<Link> link;
  {
    const MutexLock lock(mutex_);
    // A copy of the pointer: the link may be replaced while it is aborted.
    link = link_;
  }
  if (link != nullptr) link->abort(cause);
}

LinkState ReplaceableLink::state() const {
  const MutexLock lock(mutex_);
  if (link_ == nullptr) return before_;
  LinkState state = link_->state();
  state.sent_bytes += before_.sent_bytes;
  state.received_bytes += before_.received_bytes;
  return state;
}

}  // namespace strait::net
