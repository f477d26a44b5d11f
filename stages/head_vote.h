#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stages/agreement.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// Between the heads of the pipelines: what the stages of one replica have reported becomes what all
// replicas have, so that every head decides the same and nobody's weights change before.
class HeadVote {
 public:
  // What a replica's norms are of.
  enum class Norms : std::uint8_t {
    of_the_sum,  // gradients are added up over the replicas already
    of_each,     // every replica's own
  };

  // Links by replica, null at the own place; none where there is one replica.
  HeadVote(std::vector<std::unique_ptr<net::Link>> links, std::size_t replica, Norms norms,
           WaitClock& waits);

  struct Vote {
    StepReport report;
    bool stop = false;
  };
  // Says what this replica has, waits for what the others have, and returns all of it together, the
  // same at every head: losses and tokens added up in the order of replicas, norms as their mean.
  Vote cast(const Vote& mine);

  std::uint64_t sent_bytes() const;
  const net::Link* link(std::size_t replica) const {
    return replica < links_.size() ? links_[replica].get() : nullptr;
  }

 private:
  std::vector<std::unique_ptr<net::Link>> links_;
  std::size_t replica_;
  Norms norms_;
  WaitClock& waits_;
};

// The rule alone; votes by replica, at least one.
HeadVote::Vote together(const std::vector<HeadVote::Vote>& votes, HeadVote::Norms norms);

}  // namespace strait::stages
