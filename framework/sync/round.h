#pragma once

#include <compare>

#include "framework/net/frame_memory.h"
#include "framework/store/sample.h"
#include "framework/sync/layout.h"
#include "framework/sync/membership.h"

namespace strait::sync {

// The header of a frame between members, as its bytes on the wire (ROUND.md).
struct RoundMessage {
  enum class Kind : std::uint8_t {
    contribution = 1,  // to the owner of a part, or to the partner or all others
    result = 2,        // from the owner to all others
    ready = 3,         // the sender holds the whole round and can apply it
    hello = 4          // the first one of a link: what the member could sum with (GroupHello)
  };
  Kind kind = Kind::contribution;
  std::uint8_t exchange = 0;
  std::uint16_t zero = 0;
  std::uint32_t epoch = 0;  // of the membership
  std::uint64_t round = 0;
  std::uint32_t part = 0;
  std::uint32_t further_zero = 0;

  auto operator<=>(const RoundMessage&) const = default;
};

inline constexpr std::size_t kRoundMessageBytes = sizeof(RoundMessage);
static_assert(kRoundMessageBytes == 24, "no padding");

// A frame that begins with this header; the caller appends the body.
net::Frame start_frame(const RoundMessage& header);

// SyncError (corrupt) if the frame does not begin with a valid header. The body begins at
// kRoundMessageBytes.
RoundMessage read_header(std::span<const std::byte> frame);

// Where in a step a round may open. Every replica passes the same hooks in the same order.
enum class Hook : std::uint8_t {
  // The step's own gradient is complete, or completes range by range. Its norm is not known yet.
  gradient,
  // Norms are agreed on and the gradient is clipped. A skipped step does not pass this hook.
  clipped,
  // The step's update is made (or skipped).
  update,
  // The model is about to be read: by an evaluation, a checkpoint or the end of the run.
  model_read
};

// How bytes travel.
enum class Pattern : std::uint8_t {
  shard_reduce,  // each part to its owner, which reduces it and sends the result to all
  gather_all,    // each part from every member to every other; nothing is reduced
  pair,          // each part to one partner and back
  group,         // each part is summed in its place by the ReplicaGroup; nothing is encoded
  group_gather   // the ReplicaGroup copies each part of the weights from its owner to all members
};

inline bool in_group(Pattern pattern) {
  return pattern == Pattern::group || pattern == Pattern::group_gather;
}

// What a round exchanges: a pure function of settings, hook point and membership, so every replica
// computes it and none sends it.
struct RoundPlan {
  Pattern pattern = Pattern::shard_reduce;
  // Cut into shares for shard_reduce. Sent in this order; where the gradient completes range by
  // range, the last ranges complete first.
  std::vector<Range> ranges;
  // Of ranges that cannot be cut: by range, the index of the member that reduces it (shard_reduce)
  // or has changed it (group_gather).
  std::vector<std::size_t> owners;
  // Exchanges one after the other; each sees the results of the ones before.
  int exchanges = 1;
  // Updates that may pass before the round is applied; 0: it is applied at its hook.
  std::int64_t late = 0;
  // pair: a member's index; the own one: this replica has no partner in this round.
  std::size_t partner = 0;
};

// A shard_reduce of all of the layout in buckets, of values of `bits` bits.
RoundPlan plan_in_buckets(const Layout& layout, const Membership& membership, int bits);

// A hook of a step, at which a round opens or is applied: `step` updates are made before this step
// ends.
struct HookPoint {
  store::Step step{};
  Hook hook = Hook::update;
};

// One range of a round, and the member that reduces it.
struct Part {
  std::uint32_t index = 0;
  std::size_t owner = 0;  // a member's index; shard_reduce
  Range range;

  std::size_t values() const { return static_cast<std::size_t>(range.count()); }
};

// A round in progress. The engine fills it in; methods read it.
struct Round {
  // Of one exchange, by part.
  struct Exchange {
    std::vector<net::Frame> own;      // the contribution of this replica
    std::vector<net::Frame> results;  // shard_reduce: the owner's result
    // gather_all: by part and member, the own one included; pair: by part, the partner's alone.
    std::vector<std::vector<net::Frame>> received;
  };

  std::uint64_t id = 0;  // counts the rounds of a run; equal on all members
  HookPoint opened;
  RoundPlan plan;
  Membership membership;
  std::vector<Part> parts;
  std::vector<Exchange> exchanges;
  int exchange = 0;  // the current one

  // Of the first exchange, as most methods have no other.
  const net::Frame& result(const Part& part) const { return exchanges.front().results[part.index]; }
};

// The parts of a plan; a pure function.
std::vector<Part> parts_of(const RoundPlan& plan, const Membership& membership);

}  // namespace strait::sync
