#include "framework/net/background_pace.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t kMostLimit = std::uint64_t{64} << 20;
// Four fragments keep a stream without holes; with more, each would be too small.
constexpr std::uint64_t kFragmentsInFlight = 4;
// A path that we keep full shows its delay without a queue only while it runs dry. Letting it run
// dry once per window of SlidingMinimum keeps that minimum valid.
constexpr std::chrono::seconds kRunsDryEvery = SlidingMinimum::kHolds;
// Foreground bytes are taken to leave the uplink this much slower than the rate says, which may be
// a little high.
constexpr double kRateMargin = 1.1;
constexpr Seconds kLongestHold{3600};
constexpr std::uint64_t kKnownAfterBytes = std::uint64_t{128} << 10;
// How much faster than measured we send on a path that is known, so that a wider one shows; and how
// much slower while a queue stands. Between bursts on a long path the limit is never reached, and
// this alone keeps the queue from growing from one to the next.
constexpr double kPaceAhead = 0.1;
constexpr double kLeastPace = 0.5;
// Of a queue: with less, our own pace may be what limits, and what comes through is not all that
// the path carries.
constexpr double kPathLimits = 0.5;
constexpr std::uint64_t kSlower = 8;
constexpr std::chrono::microseconds kAhead{2500};
constexpr std::uint64_t kSavedUp = std::uint64_t{64} << 10;

// A chunk behind another one, however many links share the rest.
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

// What was sent last has left all queues, though its confirmation may not be here for long.
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

// A rate that was measured while a host was busy may be far too low. At its pace each chunk would
// be confirmed before the next one goes, and behind gaps nothing is measured.
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

// What an unmeasured uplink needs for so much more of the foreground. Much of it makes
// the uplink known when it is confirmed. A little may never do, so it is not waited for.
BackgroundPace::Seconds BackgroundPace::unmeasured(std::uint64_t bytes) {
  if (!searching_) return Seconds(static_cast<double>(bytes) / rate_);
  unmeasured_ += bytes;
  return unmeasured_ > kKnownAfterBytes ? kLongestHold : Seconds(0);
}

void BackgroundPace::sent(Time now, std::uint64_t position, std::uint64_t bytes,
                          const Uplink& uplink) {
  if (in_flight_.empty()) {
    confirmed_ = {confirmed_.bytes, now, {}, now, uplink.foreground().bytes};
    ran_dry_at_ = now;
    note_gap();
  }
  sent_at_ = now;
  sent_position_ = position;
  if (rate_ > 0) {
    // A whole round trip's bytes at once would wait in the uplink as well.
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

// How much faster than measured. Where confirmations come late, a queue that stands now has been
// answered by less for as long, so that it is drained in no less than that time: else the path
// would be empty again before we know.
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
  // The foreground was not on the uplink after all.
  if (newest.trickles && queued(flight) < kQueue / 2) foreground_done(now);
  if (newest.position >= round_ends_at_ && newest.measures) measure(now, newest, uplink);
  adapt(fresh, newest.filled, queued(flight), uplink);
}

// A search ends where a queue shows that the path is full, and then it carries what came through
// meanwhile; or, before it has got so far, where a foreground link knows the uplink. If the path is
// narrower than that, a queue shows it soon.
void BackgroundPace::end_search_if_known(Time now, const InFlight& newest, const Uplink& uplink) {
  const bool full = flights_ >= kFragmentsInFlight && queue(uplink) >= 1;
  if (!full && uplink.foreground_rate() == 0) return;
  const auto carried = static_cast<double>(confirmed_.bytes - newest.confirmed.bytes);
  const double rate = carried / Seconds(now - newest.sent_at).count();
  searching_ = false;
  rates_.fill(0);
  note_rate(full ? std::max(rate_, rate) : uplink.foreground_rate());
}

// What was sent behind a gap was confirmed a round trip later at the earliest, so that the time
// from the gap makes a long path look narrow, and a sender that trusts it sends less and less.
// Between confirmations it does not count.
void BackgroundPace::measure(Time now, const InFlight& newest, const Uplink& uplink) {
  const bool gap_between = newest.confirmed.at < after_gap_.at;
  const bool soon = gap_between && now - after_gap_.at < 2 * kQueue;
  const Confirmed& from = gap_between && !soon ? after_gap_ : newest.confirmed;
  // Foreground bytes shared the path meanwhile; the rate would be that of the rest only.
  if (from.foreground_bytes != newest.foreground_bytes) return;
  // Confirmations may come in a bunch, and then claim more than the path carried since the last
  // one: it cannot have carried faster than we sent.
  const Seconds passed = soon ? now - from.at : confirmed_.arrived - from.arrived;
  const Seconds taken = std::max<Seconds>(passed, newest.sent_at - from.sent_at);
  if (taken.count() <= 0) return;
  const double rate = static_cast<double>(confirmed_.bytes - from.bytes) / taken.count();
  // So soon behind a gap it is known to be as wide as that at least; the same without a queue.
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
  longest_.add(now, queued(flight) - flight.round_trip);
}

// How long a chunk waited on its way there. Not more than its confirmation was late, so that a
// clock that runs fast is no queue where nothing comes back late.
BackgroundPace::Seconds BackgroundPace::queued(const Flight& flight) const {
  return std::min(flight.round_trip - shortest_.value(), flight.one_way - nearest_.value());
}

void BackgroundPace::note_rate(double rate) {
  rates_[next_rate_] = rate;
  next_rate_ = (next_rate_ + 1) % rates_.size();
  // A round is slow when a process had to wait for its core, and fast by accident only.
  std::array<double, kRounds> sorted = rates_;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto known = std::find(sorted.begin(), sorted.end(), 0.0) - sorted.begin();
  rate_ = sorted[static_cast<std::size_t>(known) / 4];
}

// What follows a gap meets an empty path, and a shaper that has saved up for it.
void BackgroundPace::note_gap() {
  measures_from_ = sent_position_ + (searching_ ? std::min(limit_, kSavedUp) : 0);
}

// What all of the recent chunks have waited, in parts of what makes a queue.
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

// A round trip as it may last where no chunk waits: with what confirmations have waited lately.
BackgroundPace::Seconds BackgroundPace::unqueued() const {
  return flights_ == 0 ? Seconds(0) : -longest_.value();
}

// A path that shows no queue may carry more: that is sought as fast as confirmations come, or,
// where some are late all the same, slower. One that shows a queue is known.
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
