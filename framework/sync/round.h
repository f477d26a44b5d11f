#pragma once

#include <cstdint>
#include <vector>

#include "framework/net/frame_memory.h"
#include "framework/store/sample.h"
#include "framework/sync/layout.h"
#include "framework/sync/membership.h"

namespace strait::sync {

// Where in a step a round may open. Every replica passes the same hooks in the same order.
enum class Hook : std::uint8_t {
  gradient,  // the step's own gradient is there, or becomes so piece by piece; nobody knows its
             // norm
  clipped,  // norms are agreed on and the gradient is clipped; not passed by a step that is skipped
  update,   // the step's update is made (or skipped)
  look      // somebody is about to look at the model: evaluation, checkpoint, end
};

// How bytes travel.
enum class Pattern : std::uint8_t {
  shard_reduce,  // each part to its owner, who folds and answers all
  gather_all,    // each part from everybody to everybody; nobody folds
  pair           // each part to one partner and back
};

// What a round is about: a pure function of settings, moment and membership, so nobody is told.
struct RoundPlan {
  Pattern pattern = Pattern::shard_reduce;
  // Cut into shares for shard_reduce. Sent in this order; where the gradient becomes ready piece by
  // piece, the last pieces are ready first.
  std::vector<Range> ranges;
  // shard_reduce of what cannot be cut: by range, the member's place that serves it whole.
  std::vector<std::size_t> owners;
  int exchanges = 1;        // one behind the other; each sees what the ones before agreed on
  std::int64_t late = 0;    // updates that may pass before it lands; 0: it lands at its hook
  std::size_t partner = 0;  // pair: a member's place; the own one: sits this round out
};

// A moment of a run: `step` updates are made before this step ends.
struct Moment {
  store::Step step{};
  Hook hook = Hook::update;
};

// A piece of the work: one range, and who serves it.
struct Part {
  std::uint32_t index = 0;
  std::size_t owner = 0;  // a member's place; shard_reduce
  Range range;
};

// A round under way. The engine fills it in; methods read it.
struct Round {
  // Of one exchange, by part.
  struct Exchange {
    std::vector<net::Frame> mine;    // what this replica told
    std::vector<net::Frame> agreed;  // shard_reduce: what the owner answered
    // gather_all: by part and member, the own included; pair: by part, the partner's alone.
    std::vector<std::vector<net::Frame>> theirs;
  };

  std::uint64_t id = 0;  // counts the rounds of a run; equal on all members
  Moment opened;
  RoundPlan plan;
  Membership membership;
  std::vector<Part> parts;
  std::vector<Exchange> exchanges;
  int exchange = 0;  // the one under way
};

// The parts of a plan: pure.
std::vector<Part> parts_of(const RoundPlan& plan, const Membership& membership);

}  // namespace strait::sync
