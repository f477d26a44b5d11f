#include "launcher/transfer/fetch_plan.h"

#include <algorithm>
#include <utility>

#include "framework/mixed_bits.h"

namespace strait::transfer {
namespace {

using Seconds = SourceWindow::Seconds;

// Whether a source whose uplink is everybody's is so much nearer than another that it is asked.
bool nearer_by_far(Seconds spared, Seconds other) { return other > 4 * spared + Seconds(0.25); }

// Whether to leave a chunk to another source that has it too. Of two sources that have a chunk
// never both leave it to the other, and of many there is always one who does not leave it.
bool rather_there(Seconds here, bool here_spared, Seconds there, bool there_spared) {
  if (here_spared && !there_spared) return !nearer_by_far(here, there);
  if (there_spared && !here_spared) return nearer_by_far(there, here);
  return here > 2 * there + Seconds(0.05);
}

}  // namespace

FetchPlan::FetchPlan(ChunkSet lacking, std::uint64_t seed)
    : lacking_(std::move(lacking)), seed_(seed), holders_(lacking_.size(), 0) {}

FetchPlan::Source& FetchPlan::source(std::size_t number) {
  if (number >= sources_.size()) sources_.resize(number + 1, {ChunkSet(lacking_.size())});
  return sources_[number];
}

bool FetchPlan::holds(std::size_t source, std::uint32_t chunk) const {
  return source < sources_.size() && sources_[source].chunks.contains(chunk);
}

bool FetchPlan::has(std::size_t number, std::span<const ChunkRun> runs) {
  Source& from = source(number);
  from.there = true;
  for (const ChunkRun& run : runs) {
    if (run.first > lacking_.size() || run.count > lacking_.size() - run.first) return false;
    for (std::uint32_t chunk = run.first; chunk < run.first + run.count; ++chunk) {
      if (from.chunks.contains(chunk)) continue;
      from.chunks.insert(chunk);
      ++holders_[chunk];
    }
  }
  return true;
}

void FetchPlan::lost(std::size_t number) {
  Source& from = source(number);
  for (std::uint32_t chunk = 0; chunk < lacking_.size(); ++chunk) {
    if (from.chunks.contains(chunk)) --holders_[chunk];
  }
  from = {ChunkSet(lacking_.size())};
  std::erase_if(asked_, [number](const auto& asked) { return asked.second == number; });
  std::erase_if(redirects_, [number](const auto& r) { return r.second.by == number; });
  for (auto& [chunk, redirect] : redirects_) {
    if (redirect.to == number) redirect.to.reset();
  }
}

std::optional<bool> FetchPlan::may_ask(std::size_t from, std::uint32_t chunk,
                                       std::span<const SourceWindow> paces, Time now) const {
  if (holders_[chunk] > 1) {
    // Whoever we ask now we have chosen: it need not send us to others.
    for (std::size_t other = 0; other < sources_.size(); ++other) {
      if (other == from || !holds(other, chunk)) continue;
      if (rather_there(paces[from].expected(), sources_[from].spared, paces[other].expected(),
                       sources_[other].spared)) {
        return std::nullopt;
      }
    }
    return true;
  }
  const auto found = redirects_.find(chunk);
  if (found == redirects_.end() || found->second.by != from) return false;
  if (!found->second.to || now - found->second.since >= kPatience) return true;
  return std::nullopt;
}

std::optional<FetchPlan::Choice> FetchPlan::next(std::size_t from,
                                                 std::span<const SourceWindow> paces,
                                                 Time now) const {
  if (from >= sources_.size() || !sources_[from].there) return std::nullopt;
  std::optional<Choice> best;
  std::pair<std::uint32_t, std::uint64_t> best_rank;
  for (std::uint32_t chunk = 0; chunk < lacking_.size(); ++chunk) {
    if (!lacking_.contains(chunk) || !holds(from, chunk)) continue;
    const std::pair<std::uint32_t, std::uint64_t> rank{holders_[chunk],
                                                       mixed_bits(seed_ ^ mixed_bits(chunk))};
    if ((best && best_rank < rank) || asked_.contains(chunk)) continue;
    const std::optional<bool> insist = may_ask(from, chunk, paces, now);
    if (!insist) continue;
    best = Choice{chunk, *insist};
    best_rank = rank;
  }
  return best;
}

void FetchPlan::asked(std::size_t from, std::uint32_t chunk) { asked_.emplace(chunk, from); }

bool FetchPlan::take_back(std::size_t from, std::uint32_t chunk) {
  const auto found = asked_.find(chunk);
  if (found == asked_.end() || found->second != from) return false;
  asked_.erase(found);
  return true;
}

bool FetchPlan::arrived(std::size_t from, std::uint32_t chunk) {
  if (!take_back(from, chunk)) return false;
  lacking_.erase(chunk);
  redirects_.erase(chunk);
  return true;
}

bool FetchPlan::missing(std::size_t from, std::uint32_t chunk) {
  if (!take_back(from, chunk)) return false;
  if (holds(from, chunk)) --holders_[chunk];
  sources_[from].chunks.erase(chunk);
  return true;
}

bool FetchPlan::elsewhere(std::size_t from, std::uint32_t chunk, std::optional<std::size_t> to,
                          Time now) {
  if (!take_back(from, chunk)) return false;
  redirects_[chunk] = {from, to, now};
  return true;
}

bool FetchPlan::waits_on(std::size_t from) const {
  return std::any_of(asked_.begin(), asked_.end(),
                     [from](const auto& asked) { return asked.second == from; });
}

}  // namespace strait::transfer
