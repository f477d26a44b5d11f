#pragma once

#include <deque>
#include <memory>

#include "framework/sync/membership.h"
#include "stages/step_messages.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// One consensus round per step between the first stages of all replicas. Each sends the report of
// its own pipeline and receives those of all others, so that all make the same decision on the
// step. No stage updates its weights before.
//
// If replicas may be evicted (with a tracker), one may be lost during a round. A member that has
// received all proposals has completed the round. Then the round counts for the others too: the
// lost replica had sent its proposal, and had all data of the sync round. Otherwise the remaining
// members repeat the round.
//
// Where replicas train apart, a step needs no decision of all: proposals are still sent in every
// step, and read up to kLag steps later, so that neither latency nor a slow step delays the others.
// A request to stop or save is first read in the same step everywhere, and all complete the round
// of that step.
class StepConsensus {
 public:
  // Which gradient the reported norms belong to.
  enum class Norms : std::uint8_t {
    of_the_sum,  // the sum over all replicas: every replica reports the same norms
    of_each,     // each replica's own
  };

  // Links by replica, null at the own index; empty with one replica. `tracker` outlives this
  // object; null: no replica may be evicted.
  StepConsensus(std::vector<std::unique_ptr<net::Link>> links, std::size_t replica, Norms norms,
                WaitClock& waits, sync::MembershipTracker* tracker = nullptr);

  struct Proposal {
    StepReport report;
    bool stop = false;
    std::uint32_t save = 0;  // number of a checkpoint request; 0: none
    bool skip = false;       // replicas that train apart: this one makes no update
  };
  static constexpr std::size_t kLag = 8;  // steps of replicas that train apart
  enum class Kind : std::uint8_t { proposal = 1, progress = 2 };
  // A proposal for round `round`, or the progress of a replica: the number of rounds that it has
  // completed, with the result of the last one.
  struct Message {
    Kind kind = Kind::proposal;
    std::uint32_t epoch = 0;
    std::uint64_t round = 0;
    Proposal proposal;
  };
  struct Result {
    Proposal all;                        // of all participants combined; only if complete
    std::vector<std::uint32_t> members;  // replicas whose proposals it contains
    bool complete = true;                // false: the round has to be repeated
    std::uint32_t epoch = 0;             // of the membership from here on
  };
  // Exchanges proposals with all members. The result is the same on every replica.
  Result run_round(const Proposal& mine);
  // Of replicas that train apart. If the report is `joint` or a request is read, the result is that
  // of all; otherwise it is the own proposal without its requests.
  Result run_late_round(const Proposal& mine);

  // Between rounds: a replica has rejoined. Rounds are counted from zero again, as on that replica.
  void rejoin(const sync::Membership& members);
  std::uint32_t epoch() const { return members_.epoch; }

  net::Link* link(std::size_t replica) const {
    return replica < links_.size() ? links_[replica].get() : nullptr;
  }

 private:
  Proposal exchange_proposals(const Proposal& mine);
  void send_proposal(const Proposal& mine);
  Proposal take_proposals(const Proposal& mine);
  // After an eviction: finds out with the remaining members whether the round was completed.
  Result recover_round();
  std::vector<Message> exchange_progress(const sync::Membership& members);
  void send(std::uint32_t replica, const Message& message);
  Message take(std::uint32_t replica, Kind kind, std::uint32_t epoch, const std::string& what);
  net::Frame receive(std::uint32_t replica, std::uint32_t epoch);
  // Ends the wait for this replica: SyncError (membership_changed), or the error if no replica may
  // be evicted.
  [[noreturn]] void report_lost(std::uint32_t replica, const net::LinkError& error) const;

  std::vector<std::unique_ptr<net::Link>> links_;
  std::uint32_t replica_;
  Norms norms_;
  WaitClock& waits_;
  sync::MembershipTracker* tracker_;
  sync::Membership members_;
  std::uint64_t completed_ = 0;  // number of rounds
  Proposal last_;                // the result of the last completed round
  std::deque<Proposal> unread_;  // own proposals of rounds that are not completed
  // By replica: a message of an epoch that this process does not know yet.
  std::map<std::uint32_t, net::Frame> early_;
};

// Bytes of a proposal on the wire, for forecasts.
std::size_t proposal_bytes(const StepReport& report);

// The result of a round, from one proposal of each of these replicas (at least one). In their
// order, because a sum of floats depends on it.
StepConsensus::Proposal combine_proposals(const std::vector<std::uint32_t>& replicas,
                                          const std::vector<StepConsensus::Proposal>& proposals,
                                          StepConsensus::Norms norms);

}  // namespace strait::stages
