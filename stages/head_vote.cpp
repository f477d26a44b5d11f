#include "stages/head_vote.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "framework/codec/codec_error.h"
#include "framework/sync/sync_error.h"

namespace strait::stages {
namespace {

// How long a wait goes on before it looks whether anybody has left meanwhile.
constexpr std::chrono::milliseconds kVoteLook{20};
constexpr std::size_t kBallotHead = 1 + sizeof(std::uint32_t) + sizeof(std::uint64_t);
constexpr std::size_t kBallotTail = sizeof(std::uint32_t) + 1;

const sync::SyncError kVotersChange(sync::SyncError::Kind::membership_changed,
                                    "who takes part in the vote is about to change");

template <class Value>
void append_bytes(net::Frame& frame, Value value) {
  const std::size_t at = frame.size();
  frame.resize(at + sizeof value);
  std::memcpy(frame.data() + at, &value, sizeof value);
}

}  // namespace

HeadVote::HeadVote(std::vector<std::unique_ptr<net::Link>> links, std::size_t replica, Norms norms,
                   WaitClock& waits, sync::MembershipTracker* tracker)
    : links_(std::move(links)),
      replica_(static_cast<std::uint32_t>(replica)),
      norms_(norms),
      waits_(waits),
      tracker_(tracker) {
  members_.members.resize(std::max<std::size_t>(links_.size(), 1));
  std::iota(members_.members.begin(), members_.members.end(), links_.empty() ? replica_ : 0U);
}

HeadVote::Result HeadVote::cast(const Vote& mine) {
  if (links_.empty()) return {mine, members_.members};
  if (!mine.report.parted) {
    try {
      last_ = votes_of_all(mine);
      ++passed_;
      return {last_, members_.members, true, members_.epoch};
    } catch (const sync::SyncError& error) {
      if (error.kind() != sync::SyncError::Kind::membership_changed) throw;
    }
  }
  return settle_among_fewer();
}

void HeadVote::welcome(const sync::Membership& members) {
  members_ = members;
  passed_ = 0;
  last_ = {};
  early_.clear();
}

HeadVote::Vote HeadVote::votes_of_all(const Vote& mine) {
  if (tracker_ != nullptr && tracker_->latest_epoch() > members_.epoch) throw kVotersChange;
  for (const std::uint32_t replica : members_.members) {
    if (replica != replica_) send(replica, {Kind::vote, members_.epoch, passed_, mine});
  }
  std::vector<Vote> votes;
  for (const std::uint32_t replica : members_.members) {
    if (replica == replica_) {
      votes.push_back(mine);
      continue;
    }
    Ballot theirs = take(replica, Kind::vote, members_.epoch, "the vote on the step");
    if (theirs.vote.report.step != mine.report.step || theirs.number != passed_) {
      throw codec::CodecError(fmt::format(
          "{} votes on step {} where step {} is voted on", links_[replica]->state().peer,
          number(theirs.vote.report.step), number(mine.report.step)));
    }
    votes.push_back(std::move(theirs.vote));
  }
  return together(votes, norms_);
}

HeadVote::Result HeadVote::settle_among_fewer() {
  Result result;
  result.voters = members_.members;
  std::uint32_t known = members_.epoch;
  std::vector<Ballot> all;
  while (all.empty()) {
    {
      const WaitClock::Wait wait(waits_, "word on which replicas go on",
                                 [] { return static_cast<const net::Link*>(nullptr); });
      members_ = tracker_->wait_for_newer(known);
    }
    known = members_.epoch;
    try {
      all = standings(members_);
    } catch (const sync::SyncError& error) {
      if (error.kind() != sync::SyncError::Kind::membership_changed) throw;
    }
  }
  result.epoch = known;
  result.passed = false;
  for (const Ballot& theirs : all) {
    if (theirs.number <= passed_) continue;
    result.passed = true;
    result.all = last_ = theirs.vote;
    passed_ = theirs.number;
  }
  return result;
}

std::vector<HeadVote::Ballot> HeadVote::standings(const sync::Membership& among) {
  const Ballot mine{Kind::standing, among.epoch, passed_, last_};
  for (const std::uint32_t replica : among.members) {
    if (replica != replica_) send(replica, mine);
  }
  std::vector<Ballot> all = {mine};
  for (const std::uint32_t replica : among.members) {
    if (replica == replica_) continue;
    all.push_back(take(replica, Kind::standing, among.epoch, "where another replica stands"));
    const std::uint64_t there = all.back().number;
    if (there <= passed_ + 1 && passed_ <= there + 1) continue;
    throw codec::CodecError(fmt::format("{} is {} votes ahead of replica {}, which is {}",
                                        links_[replica]->state().peer, there, replica_, passed_));
  }
  return all;
}

void HeadVote::send(std::uint32_t replica, const Ballot& ballot) {
  net::Frame frame;
  append_bytes(frame, ballot.kind);
  append_bytes(frame, ballot.epoch);
  append_bytes(frame, ballot.number);
  const net::Frame report = to_frame(ballot.vote.report);
  frame.insert(frame.end(), report.begin(), report.end());
  append_bytes(frame, ballot.vote.save);
  append_bytes(frame, static_cast<std::uint8_t>(ballot.vote.stop ? 1 : 0));
  try {
    links_[replica]->send(std::move(frame));
  } catch (const net::LinkError& error) {
    lose(replica, error);
  }
}

HeadVote::Ballot HeadVote::take(std::uint32_t replica, Kind kind, std::uint32_t epoch,
                                const std::string& what) {
  const WaitClock::Wait wait(waits_, what, *links_[replica]);
  while (true) {
    const net::Frame frame = receive(replica, epoch);
    if (frame.size() < kBallotHead + kBallotTail)
      throw codec::CodecError("a vote on a step has too few bytes");
    Ballot ballot;
    std::memcpy(&ballot.kind, frame.data(), sizeof ballot.kind);
    std::memcpy(&ballot.epoch, frame.data() + 1, sizeof ballot.epoch);
    std::memcpy(&ballot.number, frame.data() + 1 + sizeof ballot.epoch, sizeof ballot.number);
    if (ballot.epoch < epoch) continue;  // among those who were there before
    if (ballot.epoch > epoch) {
      early_[replica] = frame;
      throw kVotersChange;
    }
    if (ballot.kind != kind) {
      throw codec::CodecError(
          fmt::format("{} says something else than {}", links_[replica]->state().peer, what));
    }
    const auto body = std::span(frame).subspan(kBallotHead);
    const auto tail = body.last(kBallotTail);
    ballot.vote.report = read_report(body.first(body.size() - kBallotTail));
    std::memcpy(&ballot.vote.save, tail.data(), sizeof ballot.vote.save);
    ballot.vote.stop = body.back() != std::byte{0};
    return ballot;
  }
}

net::Frame HeadVote::receive(std::uint32_t replica, std::uint32_t epoch) {
  if (const auto early = early_.extract(replica); !early.empty()) return early.mapped();
  try {
    if (tracker_ == nullptr) return links_[replica]->receive();
    while (tracker_->latest_epoch() <= epoch) {
      auto frame = links_[replica]->receive_until(std::chrono::steady_clock::now() + kVoteLook);
      if (frame) return std::move(*frame);
    }
  } catch (const net::LinkError& error) {
    lose(replica, error);
  }
  throw kVotersChange;
}

void HeadVote::lose(std::uint32_t replica, const net::LinkError& error) const {
  const bool gone =
      error.kind() == net::LinkError::Kind::lost || error.kind() == net::LinkError::Kind::aborted;
  if (tracker_ == nullptr || !gone) throw error;
  tracker_->report_lost(replica, error.what());
  throw kVotersChange;
}

std::size_t bytes_of_vote(const StepReport& report) {
  return kBallotHead + to_frame(report).size() + kBallotTail;
}

HeadVote::Vote together(const std::vector<HeadVote::Vote>& votes, HeadVote::Norms norms) {
  HeadVote::Vote all = votes.front();
  for (std::size_t i = 1; i < votes.size(); ++i) {
    const StepReport& report = votes[i].report;
    all.report.loss += report.loss;
    all.report.tokens += report.tokens;
    all.stop = all.stop || votes[i].stop;
    all.save = std::max(all.save, votes[i].save);
    if (norms == HeadVote::Norms::of_the_sum) continue;
    if (report.squared_norms.size() != all.report.squared_norms.size()) {
      throw codec::CodecError(fmt::format("replica {} votes with {} norms, replica 0 with {}", i,
                                          report.squared_norms.size(),
                                          all.report.squared_norms.size()));
    }
    for (std::size_t j = 0; j < report.squared_norms.size(); ++j) {
      all.report.squared_norms[j].value += report.squared_norms[j].value;
    }
  }
  if (norms == HeadVote::Norms::of_each) {
    for (SquaredNorm& norm : all.report.squared_norms) {
      norm.value /= static_cast<double>(votes.size());
    }
  }
  return all;
}

std::uint64_t HeadVote::sent_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& link : links_) {
    if (link != nullptr) bytes += link->state().sent_bytes;
  }
  return bytes;
}

}  // namespace strait::stages
