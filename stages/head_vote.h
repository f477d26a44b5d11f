#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "framework/sync/membership.h"
#include "stages/agreement.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// Between the heads of the pipelines: what the stages of one replica have reported becomes what all
// replicas have, so that every head decides the same and nobody's weights change before.
//
// Where replicas may leave (a tracker), a vote that one of them leaves in the middle of is settled
// by those who are left: it has passed for all when it has passed for one, for that one had the
// votes of all, and their word that they hold what is to land; else it is to be cast again among
// fewer.
class HeadVote {
 public:
  // What a replica's norms are of.
  enum class Norms : std::uint8_t {
    of_the_sum,  // gradients are added up over the replicas already
    of_each,     // every replica's own
  };

  // Links by replica, null at the own place; none where there is one replica. `tracker` outlives
  // this; null: nobody leaves.
  HeadVote(std::vector<std::unique_ptr<net::Link>> links, std::size_t replica, Norms norms,
           WaitClock& waits, sync::MembershipTracker* tracker = nullptr);

  struct Vote {
    StepReport report;
    bool stop = false;
    std::uint32_t save = 0;  // the number of a wish for a checkpoint; 0: none
  };
  struct Result {
    Vote all;                           // where it has passed
    std::vector<std::uint32_t> voters;  // whose votes are in it
    bool passed = true;
    std::uint32_t epoch = 0;  // of the membership from here on
  };
  // Says what this replica has, waits for what the others have, and returns all of it together, the
  // same at every head: losses and tokens added up in the order of replicas, norms as their mean.
  Result cast(const Vote& mine);

  // Between votes: from now on these vote, one of them new, and votes are counted from zero.
  void welcome(const sync::Membership& members);
  std::uint32_t epoch() const { return members_.epoch; }

  std::uint64_t sent_bytes() const;
  net::Link* link(std::size_t replica) const {
    return replica < links_.size() ? links_[replica].get() : nullptr;
  }

 private:
  enum class Kind : std::uint8_t { vote = 1, standing = 2 };
  // A standing: this many ballots have passed here, and the last one of them.
  struct Ballot {
    Kind kind = Kind::vote;
    std::uint32_t epoch = 0;
    std::uint64_t number = 0;
    Vote vote;
  };

  Vote votes_of_all(const Vote& mine);
  Result settle_among_fewer();
  std::vector<Ballot> standings(const sync::Membership& among);
  void send(std::uint32_t replica, const Ballot& ballot);
  Ballot take(std::uint32_t replica, Kind kind, std::uint32_t epoch, const std::string& what);
  net::Frame receive(std::uint32_t replica, std::uint32_t epoch);
  [[noreturn]] void lose(std::uint32_t replica, const net::LinkError& error) const;

  std::vector<std::unique_ptr<net::Link>> links_;
  std::uint32_t replica_;
  Norms norms_;
  WaitClock& waits_;
  sync::MembershipTracker* tracker_;
  sync::Membership members_;
  std::uint64_t passed_ = 0;                   // ballots
  Vote last_;                                  // of them
  std::map<std::uint32_t, net::Frame> early_;  // by replica: of an epoch that is not known here yet
};

// Bytes of a vote on the wire, for forecasts.
std::size_t bytes_of_vote(const StepReport& report);

// The rule alone; votes in the order of replicas, at least one.
HeadVote::Vote together(const std::vector<HeadVote::Vote>& votes, HeadVote::Norms norms);

}  // namespace strait::stages
