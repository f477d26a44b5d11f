#include "stages/head_vote.h"

#include <fmt/format.h>

#include <utility>

#include "framework/codec/codec_error.h"

namespace strait::stages {
namespace {

net::Frame frame_of(const HeadVote::Vote& vote) {
  net::Frame frame = to_frame(vote.report);
  frame.push_back(vote.stop ? std::byte{1} : std::byte{0});
  return frame;
}

HeadVote::Vote read_vote(const net::Frame& frame, store::Step step, const std::string& peer) {
  if (frame.empty()) throw codec::CodecError("a vote on a step has no bytes");
  HeadVote::Vote vote;
  vote.report = read_report(std::span(frame).first(frame.size() - 1));
  vote.stop = frame.back() != std::byte{0};
  if (vote.report.step != step) {
    throw codec::CodecError(fmt::format("{} votes on step {} where step {} is voted on", peer,
                                        number(vote.report.step), number(step)));
  }
  return vote;
}

}  // namespace

HeadVote::HeadVote(std::vector<std::unique_ptr<net::Link>> links, std::size_t replica, Norms norms,
                   WaitClock& waits)
    : links_(std::move(links)), replica_(replica), norms_(norms), waits_(waits) {}

HeadVote::Vote HeadVote::cast(const Vote& mine) {
  if (links_.empty()) return mine;
  for (const auto& link : links_) {
    if (link != nullptr) link->send(frame_of(mine));
  }
  std::vector<Vote> votes;
  for (std::size_t replica = 0; replica < links_.size(); ++replica) {
    if (replica == replica_) {
      votes.push_back(mine);
      continue;
    }
    const WaitClock::Wait wait(waits_, "the vote on the step", *links_[replica]);
    const net::Frame frame = links_[replica]->receive();
    votes.push_back(read_vote(frame, mine.report.step, links_[replica]->state().peer));
  }
  return together(votes, norms_);
}

HeadVote::Vote together(const std::vector<HeadVote::Vote>& votes, HeadVote::Norms norms) {
  HeadVote::Vote all = votes.front();
  for (std::size_t i = 1; i < votes.size(); ++i) {
    const StepReport& report = votes[i].report;
    all.report.loss += report.loss;
    all.report.tokens += report.tokens;
    all.report.finite = all.report.finite && report.finite;
    all.stop = all.stop || votes[i].stop;
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
