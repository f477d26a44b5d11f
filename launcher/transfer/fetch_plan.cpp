#include "launcher/transfer/fetch_plan.h"

#include <algorithm>
#include <utility>

#include "framework/mixed_bits.h"

namespace strait::transfer {
namespace {

using Seconds = SourcePace::Seconds;

// Whether a source whose uplink is everybody's is so much nearer than another that it is asked.
bool nearer_by_far(Seconds spared, Seconds other) { return other > 4 * spared + Seconds(0.25); }

// Whether to leave a piece to another source that has it too. Of two sources that have a piece
// never both leave it to the other, and of many there is always one who does not leave it.
bool rather_there(Seconds here, bool here_spared, Seconds there, bool there_spared) {
  if (here_spared && !there_spared) return !nearer_by_far(here, there);
  if (there_spared && !here_spared) return nearer_by_far(there, here);
  return here > 2 * there + Seconds(0.05);
}

}  // namespace

FetchPlan::FetchPlan(PieceSet lacking, std::uint64_t seed)
    : lacking_(std::move(lacking)), seed_(seed), holders_(lacking_.size(), 0) {}

FetchPlan::Source& FetchPlan::source(std::size_t number) {
  if (number >= sources_.size()) sources_.resize(number + 1, {PieceSet(lacking_.size())});
  return sources_[number];
}

bool FetchPlan::holds(std::size_t source, std::uint32_t piece) const {
  return source < sources_.size() && sources_[source].pieces.contains(piece);
}

bool FetchPlan::has(std::size_t number, std::span<const PieceRun> runs) {
  Source& from = source(number);
  from.there = true;
  for (const PieceRun& run : runs) {
    if (run.first > lacking_.size() || run.count > lacking_.size() - run.first) return false;
    for (std::uint32_t piece = run.first; piece < run.first + run.count; ++piece) {
      if (from.pieces.contains(piece)) continue;
      from.pieces.insert(piece);
      ++holders_[piece];
    }
  }
  return true;
}

void FetchPlan::lost(std::size_t number) {
  Source& from = source(number);
  for (std::uint32_t piece = 0; piece < lacking_.size(); ++piece) {
    if (from.pieces.contains(piece)) --holders_[piece];
  }
  from = {PieceSet(lacking_.size())};
  std::erase_if(asked_, [number](const auto& asked) { return asked.second == number; });
  std::erase_if(redirects_, [number](const auto& r) { return r.second.by == number; });
  for (auto& [piece, redirect] : redirects_) {
    if (redirect.to == number) redirect.to.reset();
  }
}

std::optional<bool> FetchPlan::may_ask(std::size_t from, std::uint32_t piece,
                                       std::span<const SourcePace> paces, Time now) const {
  if (holders_[piece] > 1) {
    // Whoever we ask now we have chosen: it need not send us to others.
    for (std::size_t other = 0; other < sources_.size(); ++other) {
      if (other == from || !holds(other, piece)) continue;
      if (rather_there(paces[from].expected(), sources_[from].spared, paces[other].expected(),
                       sources_[other].spared)) {
        return std::nullopt;
      }
    }
    return true;
  }
  const auto found = redirects_.find(piece);
  if (found == redirects_.end() || found->second.by != from) return false;
  if (!found->second.to || now - found->second.since >= kPatience) return true;
  return std::nullopt;
}

std::optional<FetchPlan::Choice> FetchPlan::next(std::size_t from,
                                                 std::span<const SourcePace> paces,
                                                 Time now) const {
  if (from >= sources_.size() || !sources_[from].there) return std::nullopt;
  std::optional<Choice> best;
  std::pair<std::uint32_t, std::uint64_t> best_rank;
  for (std::uint32_t piece = 0; piece < lacking_.size(); ++piece) {
    if (!lacking_.contains(piece) || !holds(from, piece)) continue;
    const std::pair<std::uint32_t, std::uint64_t> rank{holders_[piece],
                                                       mixed_bits(seed_ ^ mixed_bits(piece))};
    if ((best && best_rank < rank) || asked_.contains(piece)) continue;
    const std::optional<bool> insist = may_ask(from, piece, paces, now);
    if (!insist) continue;
    best = Choice{piece, *insist};
    best_rank = rank;
  }
  return best;
}

void FetchPlan::asked(std::size_t from, std::uint32_t piece) { asked_.emplace(piece, from); }

bool FetchPlan::take_back(std::size_t from, std::uint32_t piece) {
  const auto found = asked_.find(piece);
  if (found == asked_.end() || found->second != from) return false;
  asked_.erase(found);
  return true;
}

bool FetchPlan::arrived(std::size_t from, std::uint32_t piece) {
  if (!take_back(from, piece)) return false;
  lacking_.erase(piece);
  redirects_.erase(piece);
  return true;
}

bool FetchPlan::missing(std::size_t from, std::uint32_t piece) {
  if (!take_back(from, piece)) return false;
  if (holds(from, piece)) --holders_[piece];
  sources_[from].pieces.erase(piece);
  return true;
}

bool FetchPlan::elsewhere(std::size_t from, std::uint32_t piece, std::optional<std::size_t> to,
                          Time now) {
  if (!take_back(from, piece)) return false;
  redirects_[piece] = {from, to, now};
  return true;
}

bool FetchPlan::waits_on(std::size_t from) const {
  return std::any_of(asked_.begin(), asked_.end(),
                     [from](const auto& asked) { return asked.second == from; });
}

}  // namespace strait::transfer
