#pragma once

#include <atomic>
#include <memory>

#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "framework/sync/round.h"

namespace strait::sync {

// The links of one replica to the other members of its stage, by member index. Members run ahead of
// each other by a message or two; a frame that comes before it is asked for is kept, and a frame of
// an older membership is discarded. Used by the engine's thread alone, except where a function says
// otherwise.
class MemberLinks {
 public:
  // By replica; null at the own number. With a `tracker`, a wait for an evicted replica ends in
  // SyncError (membership_changed). Null: the members never change.
  MemberLinks(std::vector<std::unique_ptr<net::Link>> links, Membership membership,
              MembershipTracker* tracker);

  std::size_t count() const { return membership_.count(); }

  // Waits for room in the member's window; meanwhile receives what members send, since they may
  // wait for room here. Throws as receive() does.
  void send(std::size_t member, net::Frame frame);
  // Waits for exactly this message from this member and returns the whole frame. Throws what the
  // link throws, and SyncError if the member is in a round in which it cannot be.
  net::Frame receive(std::size_t member, const RoundMessage& expected);
  // Whether receive() would not wait. False too for a dead link, so that receive() reports it.
  bool available(std::size_t member, const RoundMessage& expected);

  // While something else than links waits for members, for this one if it is known (this replica
  // itself, where it is the last): receives what has come and returns the replicas with a link that
  // is interrupted. Throws as receive() does.
  std::vector<std::uint32_t> check(std::optional<std::size_t> member);

  // Changes the members.
  void regroup(const Membership& membership);
  // Receives what has already come, so that no member waits for room here.
  void drain();

  // Any thread. The link that send(), receive() or the caller of check() waits on; null: none.
  const net::Link* awaited() const { return awaited_; }  // as Link::underlying()
  // Aborts all links. Their errors are not reported as lost members.
  void abort(const net::LinkError& cause);
  std::uint64_t sent_bytes() const;

 private:
  std::uint32_t replica(std::size_t member) const { return membership_.members[member]; }
  template <class Work>
  auto wait_on(std::uint32_t replica, Work work);
  net::Frame receive_next(std::uint32_t replica);
  void receive_pending(std::uint32_t replica);  // what has already come; throws net::LinkError
  void receive_or_report(std::uint32_t replica);
  void accept(std::uint32_t replica, net::Frame frame, const RoundMessage& expected);
  // False: the frame is of an older membership.
  bool keep(std::uint32_t replica, const RoundMessage& header, net::Frame frame);
  void check_membership() const;  // throws if a newer membership is known
  [[noreturn]] void report(std::uint32_t replica, const net::LinkError& error) const;

  std::vector<std::unique_ptr<net::Link>> links_;
  Membership membership_;
  MembershipTracker* const tracker_;
  std::vector<std::map<RoundMessage, net::Frame>> early_;  // by replica: kept frames
  std::atomic<const net::Link*> awaited_ = nullptr;
  std::atomic<bool> ending_ = false;
};

}  // namespace strait::sync
