#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/sync/layout.h"

namespace strait::sync {

// Called again and again while a group waits, for this member if it knows which (an index). Returns
// the replicas that do not answer just now; throws when the wait is pointless: a link is dead, or
// this replica leaves.
using WhileWaiting = std::function<std::vector<std::uint32_t>(std::optional<std::size_t> member)>;

// The replicas of a stage that sum their gradients where these lie, instead of sending them over
// links: on devices (stages/nccl_group.h), or in memory that they share (shared_memory_group.h).
// group_hello.h is how they find each other.
//
// All members give the same ranges in the same order, and every member gets the same bits. A sum
// takes the gradient's place, so a round that fails cannot be repeated: an error is final, and is
// net::LinkError (lost) with the numbers of replicas.
//
// Threads: the engine's calls sum(), complete() and watch(); the trainer's gradient_ready(),
// arrive() and check().
class ReplicaGroup {
 public:
  ReplicaGroup() = default;
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;
  // Ends sums that are in progress, on all members.
  virtual ~ReplicaGroup() = default;

  // What sums, for the user: "NCCL 2.29.7".
  virtual std::string name() const = 0;

  // Before a range is announced to the engine: what the trainer has computed so far, or has given
  // to the device to compute, is what sum() reads.
  virtual void gradient_ready() {}
  // Puts the sum over all members in the place of this range of the gradient, now or later.
  virtual void sum(Range range) = 0;
  // All ranges of a round are given. Returns when sums wait for no host any more: what is left is
  // for devices to do. The engine then informs the others, and waits for the same from them.
  virtual void complete(const WhileWaiting& while_waiting) = 0;
  // All members have said so: what the trainer computes, or gives to its device, from now on sees
  // the sums.
  virtual void arrive() {}
  // Beside the trainer: returns when the sums are there. If they do not come, ends them so that
  // no thread waits for the device for ever, and throws.
  virtual void watch(const WhileWaiting& /*while_waiting*/) {}
  // The trainer has read from the device what was computed from the sums. Throws what watch() has
  // thrown: then they are none.
  virtual void check() const {}
};

// What the engine has of a group, which outlives it. `model_copied` waits until the model slot is
// what the round's checksum is made of, where slots are copies of a device's memory; may be empty.
struct GroupRounds {
  ReplicaGroup* group = nullptr;
  std::function<void()> model_copied = {};
};

}  // namespace strait::sync
