#pragma once

#include "framework/net/link.h"
#include "framework/sync/layout.h"
#include "framework/sync/membership.h"
#include "framework/sync/round.h"

namespace strait::sync {

// What a member says before a group is made. Bytes: the header of a round's message (ROUND.md),
// then the texts in this order.
struct GroupHello {
  std::string kind = {};      // "NCCL", "shared memory"
  std::string version = {};   // of the library that sums
  std::string place = {};     // where the gradient lies: "host 0, cuda:1"
  std::string obstacle = {};  // why this member can be in no group; empty: it can
  std::string key = {};       // what the others need to reach it
  std::string memory = {};    // key of memory to sum in where that cannot be; empty: none
  std::string relay = {};     // of the first member: key of its FrameRelay; empty: none
  bool operator==(const GroupHello&) const = default;
};

net::Frame write_hello(const GroupHello& hello);
// SyncError (corrupt), fields::MessageError: the frame is not such a message.
GroupHello read_hello(std::span<const std::byte> frame);

// Sends this member's hello to all others and returns those of all, by member. The first frames of
// these links, which are by replica, null at the own number. Throws what links throw, and
// net::LinkError (lost) with the numbers of the replicas that did not answer within the limit.
std::vector<GroupHello> exchange_hellos(const GroupHello& mine, std::span<net::Link* const> links,
                                        const Membership& membership,
                                        std::chrono::milliseconds limit);

// Why these members make no group, so that their sums go over links; nullopt: they make one. The
// same on all members, since all see the same hellos. `place_each`: no two at one place. Throws
// net::LinkError (refused) if their versions differ.
std::optional<std::string> objection(std::span<const GroupHello> hellos,
                                     const Membership& membership, bool place_each);

// "replica 1", "replicas 1, 2".
std::string replicas_text(std::span<const std::uint32_t> replicas);

// Called again and again while a group waits, for this member if it knows which (an index). Returns
// the replicas that do not answer just now; throws when the wait is pointless: a link is dead, or
// this replica leaves.
using WhileWaiting = std::function<std::vector<std::uint32_t>(std::optional<std::size_t> member)>;

// The replicas of a stage that sum their gradients where these lie, instead of sending them over
// links: on devices (stages/nccl_group.h), or in memory that they share (shared_memory_group.h).
// hello messages are how they find each other.
//
// All members give the same ranges in the same order, and every member gets the same bits. A sum
// takes the gradient's place, so a round that fails cannot be repeated: an error is final, and is
// net::LinkError (lost) with the numbers of replicas.
//
// Threads: the engine's calls sum(), complete(), gather() and watch(); the trainer's
// values_ready(), arrive() and check().
class ReplicaGroup {
 public:
  ReplicaGroup() = default;
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;
  // Ends sums that are in progress, on all members.
  virtual ~ReplicaGroup() = default;

  // What sums, for the user: "NCCL 2.29.7".
  virtual std::string name() const = 0;

  // Before a range is announced to the engine, or weights are gathered: what the trainer has
  // computed so far, or has given to the device to compute, is what sum() and gather() read.
  virtual void values_ready() {}
  // Puts the sum over all members in the place of this range of the gradient, now or later.
  virtual void sum(Range range) = 0;
  // All ranges of a round are given. Returns when sums wait for no host any more: what is left is
  // for devices to do. The engine then informs the others, and waits for the same from them.
  virtual void complete(const WhileWaiting& while_waiting) = 0;
  // All members have said so: what the trainer computes, or gives to its device, from now on sees
  // the sums, or the weights that were gathered.
  virtual void arrive() {}
  // Beside the trainer: returns when the sums are there. If they do not come, ends them so that
  // no thread waits for the device for ever, and throws.
  virtual void watch(const WhileWaiting& /*while_waiting*/) {}
  // Copies each part of the weights from the member that owns it to all others, while the trainer
  // waits. Returns as complete() does. Only where can_gather().
  virtual bool can_gather() const { return false; }
  virtual void gather(std::span<const Part> parts, const WhileWaiting& while_waiting);
  // The trainer has read from the device what was computed from the sums. Throws what watch() has
  // thrown: then they are none.
  virtual void check() const {}
};

// What the engine has of a group, which outlives it. `model_copied` waits until the model slot is
// what the round's checksum is made of, where slots are copies of a device's memory; may be empty.
struct GroupRounds {
  ReplicaGroup* group = nullptr;
  std::function<void()> model_copied = {};
  // gather() changes weights on a device. The trainer copies them later, so the next sum compares
  // them.
  bool gathers_on_device = false;
};

}  // namespace strait::sync
