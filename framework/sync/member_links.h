#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "framework/sync/roster.h"
#include "framework/sync/round_message.h"

namespace strait::sync {

// The links of one replica to the others of its stage, by their place in the membership. Members
// run ahead of each other by a message or two; what comes before it is asked for is kept, and what
// was meant for a membership that is over is forgotten. Used by the engine's thread alone, but for
// the calls that say otherwise.
class MemberLinks {
 public:
  // By replica; null at the own number. `roster` (null: nobody leaves) turns what would wait for
  // a replica that has left into SyncError (parted).
  MemberLinks(std::vector<std::unique_ptr<net::Link>> links, Membership membership, Roster* roster);

  std::size_t count() const { return membership_.count(); }
  // Waits for room at the member's end; meanwhile takes in what members send, for they may wait for
  // room here. Throws as take() does.
  void send(std::size_t member, net::Frame frame);
  // Waits for this very message from this member: the whole frame. Throws what the link throws, and
  // SyncError where the member is in another round than it could be.
  net::Frame take(std::size_t member, const RoundMessage& expected);
  // Whether take() would not wait. A link that has died is for take() to tell of.
  bool there(std::size_t member, const RoundMessage& expected);

  // Who takes part from now on.
  void regroup(const Membership& membership);
  // Takes from the links what is there already, so that nobody waits for room at our end.
  void take_in();

  // Any thread. The link that send() or take() waits on; null: on none.
  const net::Link* awaited() const { return awaited_; }
  // What ends by this is no loss of a member.
  void abort(const net::LinkError& cause);
  std::uint64_t sent_bytes() const;

 private:
  std::uint32_t replica(std::size_t member) const { return membership_.members[member]; }
  template <class Work>
  auto wait_on(std::uint32_t replica, Work work);
  net::Frame receive(std::uint32_t replica);
  void accept(std::uint32_t replica, net::Frame frame, const RoundMessage& expected);
  // False: it is of a membership that is over.
  bool keep(std::uint32_t replica, const RoundMessage& head, net::Frame frame);
  void part() const;  // throws where a newer membership is known
  [[noreturn]] void lose(std::uint32_t replica, const net::LinkError& error) const;

  std::vector<std::unique_ptr<net::Link>> links_;
  Membership membership_;
  Roster* const roster_;
  std::vector<std::map<RoundMessage, net::Frame>> early_;
  std::atomic<const net::Link*> awaited_ = nullptr;
  std::atomic<bool> ending_ = false;
};

}  // namespace strait::sync
