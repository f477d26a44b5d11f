#include "framework/net/background_pace.h"

#include <functional>

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

// Bounds the search of a path that never shows a queue, such as loopback.
constexpr std::uint64_t kMostLimit = std::uint64_t{64} << 20;
// Four fragments keep a stream without holes; with more, each would be too small.
constexpr std::uint64_t kFragmentsInFlight = 4;
// A path that we keep full shows its delay without a queue only while it runs dry. Letting it run
// dry once per window of SlidingMinimum keeps that minimum valid.
constexpr std::chrono::seconds kRunsDryEvery = SlidingMinimum::kHolds;
// The measured rate may be a little high. We assume that foreground bytes leave the uplink this
// much slower.
constexpr double kRateMargin = 1.1;
// An uplink of unknown speed counts as busy until the foreground is confirmed.
constexpr Seconds kLongestHold{3600};
// Foreground bytes that suffice to measure an uplink.
constexpr std::uint64_t kKnownAfterBytes = std::uint64_t{128} << 10;
// How much faster than measured we send on a known path, so that a wider path shows. While a queue
// stands we send slower. Between bursts on a long path the limit is never reached; only this pace
// keeps the queue from growing from burst to burst.
constexpr double kPaceAhead = 0.1;
constexpr double kLeastPace = 0.5;
// Share of a full queue. With a shorter queue our own pace may be the limit, and the measured rate
// may be less than the path carries.
constexpr double kPathLimits = 0.5;
// The limit grows this many times slower while confirmations are late.
constexpr std::uint64_t kSlower = 8;
// Fragments may go this much ahead of the pace: on a busy host a sender wakes late.
constexpr std::chrono::microseconds kAhead{2500};
// A token bucket shaper passes about this much at once after a pause.
constexpr std::uint64_t kSavedUp = std::uint64_t{64} << 10;

// Two fragments at least, so that one always waits behind the one on the wire.
std::uint64_t least_limit(unsigned links) {
  return std::max(BackgroundPace::kLeastLimit / links, 2 * BackgroundPace::kLeastFragment);
}

unsigned at_least_one(int links) { return static_cast<unsigned>(std::max(links, 1)); }

}  // namespace

std::uint64_t BackgroundPace::allowance(Time now, Uplink& uplink) {
  const unsigned links = at_least_one(uplink.background_links());
  const bool held_back = foreground_uses_uplink(now, uplink);
  const bool dry = in_flight_.empty();
  fragment_ = fragment(links);
  // When nothing is in flight one fragment always goes: only sending measures the path.
  if (!dry && in_flight_bytes_ + fragment_ > limit_) return 0;
  if (!dry && now - ran_dry_at_ >= kRunsDryEvery && !run_dry(now, uplink)) return 0;
  trickles_ = false;
  if (!held_back) {
    if (paced_until_ <= now + kAhead || fills_search(links)) return fragment_;
    uplink.ask_again_at(paced_until_ - kAhead);
    return 0;
  }
  trickles_ = now - sent_at_ >= kTrickleEvery * links;
  if (trickles_) return kLeastFragment;
  // Bytes sent after this pause meet an empty path; their rate would be too high.
  note_gap();
  uplink.ask_again_at(foreground_until_);
  return 0;
}

// By then everything sent has left all queues, although its confirmation may take much longer to
// arrive.
bool BackgroundPace::run_dry(Time now, Uplink& uplink) {
  Seconds waits = kQueue;
  for (const Flight& one : std::span(recent_).first(std::min(flights_, kRecent))) {
    waits = std::max(waits, Seconds(kQueue) + queued(one));
  }
  const Time dry_at = sent_at_ + std::chrono::duration_cast<Time::duration>(waits);
  if (now < dry_at) {
    uplink.ask_again_at(dry_at);
    return false;
  }
  ran_dry_at_ = now;
  note_gap();
  return true;
}

// A rate measured on a busy host may be far too low. At such a pace each fragment would be
// confirmed before the next one goes, and after a gap nothing is measured. So a search ignores the
// pace up to the least limit.
bool BackgroundPace::fills_search(unsigned links) const {
  return searching_ && in_flight_bytes_ < least_limit(links);
}

// A fraction of what may wait in a queue, so that several fragments make a stream without holes.
std::uint64_t BackgroundPace::fragment(unsigned links) const {
  const std::uint64_t most = limit_ / kFragmentsInFlight;
  if (rate_ == 0) return most;
  const Seconds part = Seconds(kQueue) / links / kFragmentsInFlight;
  return std::clamp(static_cast<std::uint64_t>(rate_ * part.count()), kLeastFragment,
                    std::max(most, kLeastFragment));
}

bool BackgroundPace::foreground_uses_uplink(Time now, Uplink& uplink) {
  const Uplink::Sent before = std::exchange(foreground_seen_, uplink.foreground());
  if (!uplink.foreground_in_flight()) {
    foreground_done(now);
    return false;
  }
  const Seconds needs = foreground_seen_.takes - before.takes +
                        unmeasured(foreground_seen_.unmeasured - before.unmeasured);
  if (needs.count() > 0) {
    foreground_until_ =
        std::max(foreground_until_, now) +
        std::chrono::duration_cast<Time::duration>(std::min(needs * kRateMargin, kLongestHold));
  }
  return uplink.foreground_waits() || now < foreground_until_;
}

void BackgroundPace::foreground_done(Time now) {
  foreground_until_ = now;
  unmeasured_ = 0;
}

// The time that these further foreground bytes need on an unmeasured uplink. Many bytes measure the
// uplink when they are confirmed, so we wait for that. A few may never measure it, so we do not
// wait for them.
BackgroundPace::Seconds BackgroundPace::unmeasured(std::uint64_t bytes) {
  if (!searching_) return Seconds(static_cast<double>(bytes) / rate_);
  unmeasured_ += bytes;
  return unmeasured_ > kKnownAfterBytes ? kLongestHold : Seconds(0);
}

void BackgroundPace::sent(Time now, std::uint64_t position, std::uint64_t bytes,
                          const Uplink& uplink) {
  if (in_flight_.empty()) {
    confirmed_ = {confirmed_.bytes, now, {}, now, uplink.foreground().bytes};
    // The path was idle: the periods of running dry and of measuring start anew.
    ran_dry_at_ = now;
    note_gap();
  }
  sent_at_ = now;
  sent_position_ = position;
  if (rate_ > 0) {
    // A whole round trip's bytes sent at once would queue in the uplink.
    const double pace = searching_ ? 2 : 1 + ahead(uplink);
    const Seconds takes(static_cast<double>(bytes) / (rate_ * pace));
    paced_until_ = std::clamp(paced_until_, now, now + kAhead) +
                   std::chrono::duration_cast<Time::duration>(takes);
  }
  in_flight_bytes_ += bytes;
  const bool filled = in_flight_bytes_ + fragment_ > limit_;
  const bool busy = filled || paced_until_ > now + kAhead;
  const bool measures = busy && position > measures_from_;
  in_flight_.push_back({position, bytes, filled, measures, trickles_, measures_from_, now,
                        confirmed_, uplink.foreground().bytes});
}

// How much faster than measured we send. Where confirmations come late, the queue seen now has
// already been answered by slower sending for that long. It is therefore drained over no less than
// that time; otherwise the path would run empty before we know.
double BackgroundPace::ahead(const Uplink& uplink) const {
  const double missing = 1 - queue(uplink);
  if (missing >= 0) return std::min(missing, 1.0) * kPaceAhead;
  const double drains = full(uplink) / std::max(unqueued(), full(uplink));
  return std::max(missing * std::min(kPaceAhead, drains), kLeastPace - 1);
}

void BackgroundPace::received(Time now, std::uint64_t position, Nanoseconds arrived,
                              const Uplink& uplink) {
  InFlight newest;
  std::uint64_t fresh = 0;
  while (!in_flight_.empty() && in_flight_.front().position <= position) {
    newest = in_flight_.front();
    fresh += newest.bytes;
    in_flight_.pop_front();
  }
  if (fresh == 0) return;
  in_flight_bytes_ -= fresh;
  confirmed_ = {confirmed_.bytes + fresh, now, arrived, newest.sent_at, newest.foreground_bytes};
  if (newest.position > newest.counts_from && newest.counts_from != counts_from_) {
    counts_from_ = newest.counts_from;
    after_gap_ = confirmed_;
  }
  const Flight flight{now - newest.sent_at, arrived - newest.sent_at.time_since_epoch()};
  note_flight(now, flight);
  if (searching_) end_search_if_known(now, newest, uplink);
  // The trickle met no queue, so the foreground has left the uplink.
  if (newest.trickles && queued(flight) < kQueue / 2) foreground_done(now);
  if (newest.position >= round_ends_at_ && newest.measures) measure(now, newest, uplink);
  adapt(fresh, newest.filled, queued(flight), uplink);
}

// The search ends when a queue shows that the path is full: the path then carries what came through
// meanwhile. It also ends earlier if a foreground link knows the uplink's rate. If the path is
// narrower than that uplink, a queue shows it soon.
void BackgroundPace::end_search_if_known(Time now, const InFlight& newest, const Uplink& uplink) {
  const bool full = flights_ >= kFragmentsInFlight && queue(uplink) >= 1;
  if (!full && uplink.foreground_rate() == 0) return;
  const auto carried = static_cast<double>(confirmed_.bytes - newest.confirmed.bytes);
  const double rate = carried / Seconds(now - newest.sent_at).count();
  searching_ = false;
  rates_.fill(0);
  note_rate(full ? std::max(rate_, rate) : uplink.foreground_rate());
}

// Bytes sent after a gap are confirmed a round trip later at the earliest. If the rate counted from
// the gap, a long path would look narrow, and a sender that trusts it would send less and less. So
// time is counted between confirmations.
void BackgroundPace::measure(Time now, const InFlight& newest, const Uplink& uplink) {
  const bool gap_between = newest.confirmed.at < after_gap_.at;
  const bool soon = gap_between && now - after_gap_.at < 2 * kQueue;
  const Confirmed& from = gap_between && !soon ? after_gap_ : newest.confirmed;
  // Foreground bytes shared the path meanwhile; the rate would be that of the rest only.
  if (from.foreground_bytes != newest.foreground_bytes) return;
  // Confirmations may come in a bunch and then claim more than the path carried since the last one.
  // It cannot have carried faster than we sent.
  const Seconds passed = soon ? now - from.at : confirmed_.arrived - from.arrived;
  const Seconds taken = std::max<Seconds>(passed, newest.sent_at - from.sent_at);
  if (taken.count() <= 0) return;
  const double rate = static_cast<double>(confirmed_.bytes - from.bytes) / taken.count();
  // So soon after a gap the rate is only a lower bound. The same holds without a queue.
  if (soon && rate <= rate_) return;
  round_ends_at_ = sent_position_;
  if (queue(uplink) < kPathLimits && rate <= rate_) return;
  if (searching_ && rate > rate_) rates_.fill(0);  // of a path that was not full yet
  note_rate(rate);
}

void BackgroundPace::note_flight(Time now, const Flight& flight) {
  shortest_.add(now, flight.round_trip);
  nearest_.add(now, flight.one_way);
  recent_[flights_++ % kRecent] = flight;
  // Stored negated, because SlidingMinimum keeps the least value and we need the greatest.
  longest_.add(now, queued(flight) - flight.round_trip);
}

// How long a fragment waited on its way to the peer. It is at most the delay of its confirmation: a
// peer's clock that runs fast must not look like a queue when nothing comes back late.
BackgroundPace::Seconds BackgroundPace::queued(const Flight& flight) const {
  return std::min(flight.round_trip - shortest_.value(), flight.one_way - nearest_.value());
}

void BackgroundPace::note_rate(double rate) {
  rates_[next_rate_] = rate;
  next_rate_ = (next_rate_ + 1) % rates_.size();
  // The upper quartile: a round is slow whenever a process waited for its core, and fast only by
  // accident.
  std::array<double, kRounds> sorted = rates_;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto known = std::find(sorted.begin(), sorted.end(), 0.0) - sorted.begin();
  rate_ = sorted[static_cast<std::size_t>(known) / 4];
}

// Bytes after a gap meet an empty path, and a shaper that has saved up tokens.
void BackgroundPace::note_gap() {
  measures_from_ = sent_position_ + (searching_ ? std::min(limit_, kSavedUp) : 0);
}

// The shortest wait of all recent fragments, as a fraction of a full queue. The minimum, because
// one late fragment is not a queue.
double BackgroundPace::queue(const Uplink& uplink) const {
  const std::size_t known = std::min(flights_, kRecent);
  if (known == 0) return 0;
  Flight least = recent_[0];
  for (const Flight& one : std::span(recent_).first(known)) {
    least = {std::min(least.round_trip, one.round_trip), std::min(least.one_way, one.one_way)};
  }
  return queued(least) / full(uplink);
}

BackgroundPace::Seconds BackgroundPace::full(const Uplink& uplink) {
  return Seconds(kQueue) / at_least_one(uplink.background_links()) / 2;
}

// The longest recent round trip without its queue: late confirmations are included.
BackgroundPace::Seconds BackgroundPace::unqueued() const {
  return flights_ == 0 ? Seconds(0) : -longest_.value();
}

// A path without a queue may carry more: the limit grows with every confirmation, and slower while
// some are late. A path with a queue is known, so the limit is what it carries.
void BackgroundPace::adapt(std::uint64_t fresh, bool filled, Seconds queued, const Uplink& uplink) {
  const unsigned links = at_least_one(uplink.background_links());
  const Seconds most = Seconds(kQueue) / links;
  const auto known = static_cast<std::uint64_t>(rate_ * (unqueued() + most).count());
  if (!searching_ && queue(uplink) >= 1) {
    limit_ = known;
  } else {
    const bool late = !searching_ && queued >= most / 2;
    limit_ = std::max(limit_ + (filled ? fresh / (late ? kSlower : 1) : 0), known);
  }
  limit_ = std::clamp(limit_, least_limit(links), kMostLimit);
}

}  // namespace strait::net
