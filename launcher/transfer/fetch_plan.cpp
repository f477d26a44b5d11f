#include "launcher/transfer/fetch_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/mixed_bits.h"

namespace strait::transfer {
namespace {

using Seconds = SourceWindow::Seconds;

constexpr Seconds kRateInterval{0.2};  // shortest time over which a rate is measured
constexpr Seconds kReserve{0.1};       // covers the time that reading and writing take at both ends
constexpr auto kChunk = static_cast<double>(ChunkTable::kChunkBytes);

// Whether a spared source is so much nearer than another that it is asked all the same.
bool much_nearer(Seconds spared, Seconds other) { return other > 4 * spared + Seconds(0.25); }

// Whether to leave a chunk to another source that has it, too. The relation has no cycle: of two
// sources at most one defers to the other, and of many one defers to none, so that a chunk is
// always requested from some source. The factor 2 and the 50 ms keep sources of about equal speed
// from deferring to each other at every small change.
bool defers_to(Seconds here, bool here_spared, Seconds there, bool there_spared) {
  if (here_spared && !there_spared) return !much_nearer(here, there);
  if (there_spared && !here_spared) return much_nearer(there, here);
  return here > 2 * there + Seconds(0.05);
}

}  // namespace

void SourceWindow::set_round_trip(Seconds took) {
  round_trip_ = round_trip_known_ ? std::min(round_trip_, took) : took;
  round_trip_known_ = true;
}

void SourceWindow::requested(Time now) {
  // After a pause a new interval begins: idle time is not part of the rate.
  if (outstanding_ == 0) {
    measured_from_ = now;
    measured_bytes_ = 0;
  }
  ++outstanding_;
}

void SourceWindow::received(Time now, std::uint64_t bytes) {
  --outstanding_;
  measured_bytes_ += bytes;
  const Seconds took = now - measured_from_;
  if (took < kRateInterval) return;
  const double measured = static_cast<double>(measured_bytes_) / took.count();
  rate_ = rate_ == 0 ? measured : (rate_ + measured) / 2;
  measured_from_ = now;
  measured_bytes_ = 0;
}

void SourceWindow::declined() { --outstanding_; }

int SourceWindow::room() const {
  const double window = std::ceil(rate_ * (round_trip_ + kReserve).count() / kChunk) + 1;
  return std::clamp(static_cast<int>(std::min<double>(window, kMost)), kLeast, kMost) -
         outstanding_;
}

SourceWindow::Seconds SourceWindow::expected_delay() const {
  if (rate_ == 0) return round_trip_;
  return round_trip_ + Seconds((outstanding_ + 1) * kChunk / rate_);
}

FetchPlan::FetchPlan(ChunkSet lacking, std::uint64_t seed)
    : lacking_(std::move(lacking)), seed_(seed), source_counts_(lacking_.size(), 0) {}

FetchPlan::Source& FetchPlan::source(std::size_t number) {
  if (number >= sources_.size()) sources_.resize(number + 1, {ChunkSet(lacking_.size())});
  return sources_[number];
}

bool FetchPlan::has(std::size_t source, std::uint32_t chunk) const {
  return source < sources_.size() && sources_[source].chunks.contains(chunk);
}

bool FetchPlan::add_chunks(std::size_t number, std::span<const ChunkRun> runs) {
  Source& from = source(number);
  from.connected = true;
  for (const ChunkRun& run : runs) {
    if (run.first > lacking_.size() || run.count > lacking_.size() - run.first) return false;
    for (std::uint32_t chunk = run.first; chunk < run.first + run.count; ++chunk) {
      if (from.chunks.contains(chunk)) continue;
      from.chunks.insert(chunk);
      ++source_counts_[chunk];
    }
  }
  return true;
}

void FetchPlan::remove_source(std::size_t number) {
  Source& from = source(number);
  for (std::uint32_t chunk = 0; chunk < lacking_.size(); ++chunk) {
    if (from.chunks.contains(chunk)) --source_counts_[chunk];
  }
  from = {ChunkSet(lacking_.size())};
  std::erase_if(requested_, [number](const auto& request) { return request.second == number; });
  std::erase_if(redirects_, [number](const auto& r) { return r.second.by == number; });
  for (auto& [chunk, redirect] : redirects_) {
    if (redirect.to == number) redirect.to.reset();
  }
}

std::optional<bool> FetchPlan::may_request(std::size_t from, std::uint32_t chunk,
                                           std::span<const SourceWindow> windows, Time now) const {
  if (source_counts_[chunk] > 1) {
    for (std::size_t other = 0; other < sources_.size(); ++other) {
      if (other == from || !has(other, chunk)) continue;
      if (defers_to(windows[from].expected_delay(), sources_[from].spared,
                    windows[other].expected_delay(), sources_[other].spared)) {
        return std::nullopt;
      }
    }
    // Forced: this source was chosen among several, so a redirect to another one is of no use.
    return true;
  }
  const auto found = redirects_.find(chunk);
  if (found == redirects_.end() || found->second.by != from) return false;
  if (!found->second.to || now - found->second.since >= kRedirectTimeout) return true;
  return std::nullopt;
}

std::optional<FetchPlan::Choice> FetchPlan::next(std::size_t from,
                                                 std::span<const SourceWindow> windows,
                                                 Time now) const {
  if (from >= sources_.size() || !sources_[from].connected) return std::nullopt;
  std::optional<Choice> best;
  // Rarest first. Chunks with equally many sources are ordered by the seed, so that each host
  // begins with others.
  std::pair<std::uint32_t, std::uint64_t> best_rank;
  for (std::uint32_t chunk = 0; chunk < lacking_.size(); ++chunk) {
    if (!lacking_.contains(chunk) || !has(from, chunk)) continue;
    const std::pair<std::uint32_t, std::uint64_t> rank{source_counts_[chunk],
                                                       mixed_bits(seed_ ^ mixed_bits(chunk))};
    if ((best && best_rank < rank) || requested_.contains(chunk)) continue;
    const std::optional<bool> force = may_request(from, chunk, windows, now);
    if (!force) continue;
    best = Choice{chunk, *force};
    best_rank = rank;
  }
  return best;
}

void FetchPlan::requested(std::size_t from, std::uint32_t chunk) {
  requested_.emplace(chunk, from);
}

bool FetchPlan::end_request(std::size_t from, std::uint32_t chunk) {
  if (!waits_for(from, chunk)) return false;
  requested_.erase(chunk);
  return true;
}

bool FetchPlan::received(std::size_t from, std::uint32_t chunk) {
  if (!end_request(from, chunk)) return false;
  lacking_.erase(chunk);
  redirects_.erase(chunk);
  return true;
}

bool FetchPlan::missing(std::size_t from, std::uint32_t chunk) {
  if (!end_request(from, chunk)) return false;
  if (has(from, chunk)) --source_counts_[chunk];
  sources_[from].chunks.erase(chunk);
  return true;
}

bool FetchPlan::redirected(std::size_t from, std::uint32_t chunk, std::optional<std::size_t> to,
                           Time now) {
  if (!end_request(from, chunk)) return false;
  redirects_[chunk] = {from, to, now};
  return true;
}

bool FetchPlan::waits_for(std::size_t from, std::uint32_t chunk) const {
  const auto found = requested_.find(chunk);
  return found != requested_.end() && found->second == from;
}

bool FetchPlan::waits_for(std::size_t from) const {
  return std::any_of(requested_.begin(), requested_.end(),
                     [from](const auto& request) { return request.second == from; });
}

bool FetchPlan::has_open(std::size_t from) const {
  for (std::uint32_t chunk = 0; chunk < lacking_.size(); ++chunk) {
    if (lacking_.contains(chunk) && has(from, chunk) && !requested_.contains(chunk)) return true;
  }
  return false;
}

}  // namespace strait::transfer
