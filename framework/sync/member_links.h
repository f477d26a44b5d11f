#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "framework/net/link.h"
#include "framework/sync/round_message.h"

namespace strait::sync {

// The links of one replica to the others of its stage, by their place in the membership. Members
// run ahead of each other by a message or two; what comes before it is asked for is kept. Used by
// the engine's thread alone, but for the calls that say otherwise.
class MemberLinks {
 public:
  // By member; null at the own place.
  explicit MemberLinks(std::vector<std::unique_ptr<net::Link>> links) : links_(std::move(links)) {
    early_.resize(links_.size());
  }

  std::size_t count() const { return links_.size(); }
  void send(std::size_t member, net::Frame frame);
  // Waits for this very message from this member: the whole frame. Throws what the link throws, and
  // SyncError where the member is in another round than it could be.
  net::Frame take(std::size_t member, const RoundMessage& expected);

  // Any thread. The link that take() waits on; null: on none.
  const net::Link* awaited() const { return awaited_; }
  const net::Link* link(std::size_t member) const { return links_[member].get(); }
  void abort(const net::LinkError& cause);
  std::uint64_t sent_bytes() const;

 private:
  std::vector<std::unique_ptr<net::Link>> links_;
  std::vector<std::map<RoundMessage, net::Frame>> early_;
  std::atomic<const net::Link*> awaited_ = nullptr;
};

}  // namespace strait::sync
