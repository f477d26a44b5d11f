#include "stages/step_consensus.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "framework/codec/message.h"
#include "framework/fields/byte_fields.h"
#include "framework/sync/sync_error.h"

namespace strait::stages {
namespace {

// How often a wait for a message checks the membership.
constexpr std::chrono::milliseconds kMembershipPoll{20};

const sync::SyncError kMembershipChanged(sync::SyncError::Kind::membership_changed,
                                         "the members of the consensus round have changed");

}  // namespace

void describe(auto& f, fields::Is<StepConsensus::Message> auto& m) {
  f("kind", m.kind), f("epoch", m.epoch), f("round", m.round), f("report", m.proposal.report);
  f("save", m.proposal.save), f("stop", m.proposal.stop), f("skip", m.proposal.skip);
}

StepConsensus::StepConsensus(std::vector<std::unique_ptr<net::Link>> links, std::size_t replica,
                             Norms norms, WaitClock& waits, sync::MembershipTracker* tracker)
    : links_(std::move(links)),
      replica_(static_cast<std::uint32_t>(replica)),
      norms_(norms),
      waits_(waits),
      tracker_(tracker) {
  members_.members.resize(std::max<std::size_t>(links_.size(), 1));
  std::iota(members_.members.begin(), members_.members.end(), links_.empty() ? replica_ : 0U);
}

StepConsensus::Result StepConsensus::run_round(const Proposal& mine) {
  if (links_.empty()) return {mine, members_.members};
  // A replica that lacks data of the sync round sends no proposal, so that no member completes the
  // round.
  if (!mine.report.round_incomplete) {
    try {
      last_ = exchange_proposals(mine);
      ++completed_;
      return {last_, members_.members, true, members_.epoch};
    } catch (const sync::SyncError& error) {
      if (error.kind() != sync::SyncError::Kind::membership_changed) throw;
    }
  }
  return recover_round();
}

StepConsensus::Result StepConsensus::run_late_round(const Proposal& mine) {
  if (links_.empty()) return {mine, members_.members};
  send_proposal(mine);
  unread_.push_back(mine);
  Proposal all;
  bool stop = false;
  std::uint32_t save = 0;
  bool joint = mine.report.joint;
  while (unread_.size() > (joint ? 0 : kLag)) {
    all = take_proposals(unread_.front());
    unread_.pop_front();
    ++completed_;
    stop = stop || all.stop;
    save = std::max(save, all.save);
    joint = joint || stop || save > 0;
  }
  Result result{joint ? all : mine, members_.members, true, members_.epoch};
  result.all.stop = stop;
  result.all.save = save;
  return result;
}

void StepConsensus::rejoin(const sync::Membership& members) {
  members_ = members;
  completed_ = 0;
  last_ = {};
  early_.clear();
}

StepConsensus::Proposal StepConsensus::exchange_proposals(const Proposal& mine) {
  if (tracker_ != nullptr && tracker_->latest_epoch() > members_.epoch) throw kMembershipChanged;
  send_proposal(mine);
  return take_proposals(mine);
}

void StepConsensus::send_proposal(const Proposal& mine) {
  const std::uint64_t round = completed_ + unread_.size();
  for (const std::uint32_t replica : members_.members) {
    if (replica != replica_) send(replica, {Kind::proposal, members_.epoch, round, mine});
  }
}

StepConsensus::Proposal StepConsensus::take_proposals(const Proposal& mine) {
  std::vector<Proposal> proposals;
  for (const std::uint32_t replica : members_.members) {
    if (replica == replica_) {
      proposals.push_back(mine);
      continue;
    }
    Message theirs = take(replica, Kind::proposal, members_.epoch, "the proposal for the step");
    if (theirs.proposal.report.step != mine.report.step || theirs.round != completed_) {
      throw codec::CodecError(
          fmt::format("{} sent a proposal for step {} where step {} was expected",
                      links_[replica]->state().peer, number(theirs.proposal.report.step),
                      number(mine.report.step)));
    }
    proposals.push_back(std::move(theirs.proposal));
  }
  return combine_proposals(members_.members, proposals, norms_);
}

StepConsensus::Result StepConsensus::recover_round() {
  TORCH_INTERNAL_ASSERT(tracker_ != nullptr, "a consensus round without all of its members");
  Result result;
  result.members = members_.members;
  std::uint32_t known = members_.epoch;
  std::vector<Message> all;
  // Repeated for every further replica that is lost meanwhile.
  while (all.empty()) {
    {
      const WaitClock::Wait wait(waits_, "the membership after an eviction",
                                 [] { return static_cast<const net::Link*>(nullptr); });
      members_ = tracker_->wait_for_newer(known);
    }
    known = members_.epoch;
    try {
      all = exchange_progress(members_);
    } catch (const sync::SyncError& error) {
      if (error.kind() != sync::SyncError::Kind::membership_changed) throw;
    }
  }
  result.epoch = known;
  result.complete = false;
  // A member that is ahead has completed the round that this one was in.
  for (const Message& theirs : all) {
    if (theirs.round <= completed_) continue;
    result.complete = true;
    result.all = last_ = theirs.proposal;
    completed_ = theirs.round;
  }
  return result;
}

std::vector<StepConsensus::Message> StepConsensus::exchange_progress(
    const sync::Membership& members) {
  const Message mine{Kind::progress, members.epoch, completed_, last_};
  for (const std::uint32_t replica : members.members) {
    if (replica != replica_) send(replica, mine);
  }
  std::vector<Message> all = {mine};
  for (const std::uint32_t replica : members.members) {
    if (replica == replica_) continue;
    all.push_back(take(replica, Kind::progress, members.epoch, "the progress of another replica"));
    // Replicas wait for each other in every round, so none can be two rounds ahead.
    const std::uint64_t there = all.back().round;
    if (there <= completed_ + 1 && completed_ <= there + 1) continue;
    throw codec::CodecError(fmt::format(
        "{} has completed {} consensus rounds and replica {} only {}: at most one apart",
        links_[replica]->state().peer, there, replica_, completed_));
  }
  return all;
}

void StepConsensus::send(std::uint32_t replica, const Message& message) {
  try {
    links_[replica]->send(fields::to_bytes<net::Frame>(message));
  } catch (const net::LinkError& error) {
    report_lost(replica, error);
  }
}

StepConsensus::Message StepConsensus::take(std::uint32_t replica, Kind kind, std::uint32_t epoch,
                                           const std::string& what) {
  const WaitClock::Wait wait(waits_, what, *links_[replica]);
  while (true) {
    const net::Frame frame = receive(replica, epoch);
    auto message = fields::from_bytes<Message>(frame, "consensus message");
    // Sent before the last eviction; its round is over.
    if (message.epoch < epoch) continue;
    if (message.epoch > epoch) {
      if (tracker_ == nullptr) {
        throw codec::CodecError(fmt::format(
            "{} sent a consensus message of epoch {}, but the membership of this run cannot change",
            links_[replica]->state().peer, message.epoch));
      }
      // Stored for the round of that epoch.
      early_[replica] = frame;
      throw kMembershipChanged;
    }
    if (message.kind != kind) {
      throw codec::CodecError(fmt::format("{} sent another consensus message where {} was expected",
                                          links_[replica]->state().peer, what));
    }
    return message;
  }
}

net::Frame StepConsensus::receive(std::uint32_t replica, std::uint32_t epoch) {
  if (const auto early = early_.extract(replica); !early.empty()) return early.mapped();
  try {
    if (tracker_ == nullptr) return links_[replica]->receive();
    while (tracker_->latest_epoch() <= epoch) {
      auto frame =
          links_[replica]->receive_until(std::chrono::steady_clock::now() + kMembershipPoll);
      if (frame) return std::move(*frame);
    }
  } catch (const net::LinkError& error) {
    report_lost(replica, error);
  }
  throw kMembershipChanged;
}

void StepConsensus::report_lost(std::uint32_t replica, const net::LinkError& error) const {
  if (tracker_ == nullptr || !error.peer_gone()) throw error;
  // The coordinator decides which replica is evicted; the next epoch tells.
  tracker_->report_lost(replica, error.what());
  throw kMembershipChanged;
}

std::size_t proposal_bytes(const StepReport& report) {
  return fields::to_bytes<net::Frame>(StepConsensus::Message{.proposal = {.report = report}})
      .size();
}

StepConsensus::Proposal combine_proposals(const std::vector<std::uint32_t>& replicas,
                                          const std::vector<StepConsensus::Proposal>& proposals,
                                          StepConsensus::Norms norms) {
  StepConsensus::Proposal all = proposals.front();
  for (std::size_t i = 1; i < proposals.size(); ++i) {
    const StepReport& report = proposals[i].report;
    all.report.loss += report.loss;
    all.report.margin += report.margin;
    all.report.accuracy += report.accuracy;
    all.report.tokens += report.tokens;
    all.stop = all.stop || proposals[i].stop;
    all.save = std::max(all.save, proposals[i].save);
    all.skip = all.skip || proposals[i].skip;
    if (norms == StepConsensus::Norms::of_the_sum) continue;
    if (report.squared_norms.size() != all.report.squared_norms.size()) {
      throw codec::CodecError(fmt::format("replica {} reports {} gradient norms and replica {} {}",
                                          replicas[i], report.squared_norms.size(), replicas[0],
                                          all.report.squared_norms.size()));
    }
    for (std::size_t j = 0; j < report.squared_norms.size(); ++j) {
      all.report.squared_norms[j].value += report.squared_norms[j].value;
    }
  }
  if (norms == StepConsensus::Norms::of_each) {
    for (SquaredNorm& norm : all.report.squared_norms) {
      norm.value /= static_cast<double>(proposals.size());
    }
  }
  return all;
}

}  // namespace strait::stages
