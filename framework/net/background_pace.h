#pragma once

#include "framework/net/rate_meter.h"
#include "framework/net/uplink.h"

namespace strait::net {

// When a background link may put a fragment on the wire, and how large. Pure: no clock, no lock.
//
// Bytes in a queue cannot yield any more, so few may queue: what the path carries in about kQueue,
// in addition to what is in flight. The queue is the least time that any recent fragment waited on
// its way: its delay from our clock to the peer's clock, minus the least such delay of the last
// seconds. Late confirmations, caused by traffic in the other direction, do not count as a queue.
// The rate is one that a quarter of the recent rounds reached, by the peer's clock. This fills an
// idle path and delays later traffic by about kQueue.
//
// While the uplink still has to carry bytes of a foreground link, only a trickle goes. The uplink
// has carried them when they are confirmed. On a long path it has carried them after the time that
// they need at the rate measured by that link, or by this one. A trickle that meets no queue shows
// earlier that they have left.
class BackgroundPace {
 public:
  using Time = Uplink::Time;
  using Nanoseconds = std::chrono::nanoseconds;

  static constexpr std::chrono::microseconds kQueue{5000};  // shared by all background links
  static constexpr std::uint64_t kLeastFragment = 4096;
  // Bytes in flight, of all links together. A host with busy cores confirms late and looks narrow;
  // this floor keeps the rate from falling to nothing.
  static constexpr std::uint64_t kLeastLimit = std::uint64_t{32} << 10;
  // one least fragment, for all links together
  static constexpr std::chrono::milliseconds kTrickleEvery{100};

  // How many bytes of a frame may go as one fragment now. 0: none yet; the uplink knows when to ask
  // again.
  std::uint64_t allowance(Time now, Uplink& uplink);

  // A fragment of `bytes`, framing included, was sent; the stream is sent up to `position`.
  // Positions count bytes of frames.
  void sent(Time now, std::uint64_t position, std::uint64_t bytes, const Uplink& uplink);
  // The peer has the stream up to `position`. `arrived`: when its last byte arrived, by the peer's
  // clock.
  void received(Time now, std::uint64_t position, Nanoseconds arrived, const Uplink& uplink);

  double bytes_per_second() const { return rate_; }  // of the path; 0: not measured yet

 private:
  using Seconds = SlidingMinimum::Seconds;

  struct Flight {  // of one fragment
    Seconds round_trip{0};
    Seconds one_way{0};  // from our clock to the peer's: only differences count
  };
  struct Confirmed {
    std::uint64_t bytes = 0;             // since the link began
    Time at;                             // when the last of them were
    Nanoseconds arrived{0};              // when they arrived, by the peer's clock
    Time sent_at;                        // when they were sent
    std::uint64_t foreground_bytes = 0;  // sent until then, since the link began
  };
  struct InFlight {
    std::uint64_t position = 0;
    std::uint64_t bytes = 0;
    bool filled = false;            // it reached the limit
    bool measures = false;          // limited by the path since the last gap, not by a lack of data
    bool trickles = false;          // the foreground was thought to be on the uplink
    std::uint64_t counts_from = 0;  // the position after the last gap
    Time sent_at;
    // The state when it was sent.
    Confirmed confirmed;
    std::uint64_t foreground_bytes = 0;
  };

  std::uint64_t fragment(unsigned links) const;
  bool run_dry(Time now, Uplink& uplink);
  bool fills_search(unsigned links) const;
  bool foreground_uses_uplink(Time now, Uplink& uplink);
  void foreground_done(Time now);
  Seconds unmeasured(std::uint64_t bytes);
  void note_flight(Time now, const Flight& flight);
  void measure(Time now, const InFlight& newest, const Uplink& uplink);
  void note_rate(double rate);
  void note_gap();
  void end_search_if_known(Time now, const InFlight& newest, const Uplink& uplink);
  void adapt(std::uint64_t fresh, bool filled, Seconds queued, const Uplink& uplink);
  Seconds queued(const Flight& flight) const;
  Seconds unqueued() const;
  double queue(const Uplink& uplink) const;
  double ahead(const Uplink& uplink) const;
  static Seconds full(const Uplink& uplink);

  std::deque<InFlight> in_flight_;
  std::uint64_t in_flight_bytes_ = 0;
  std::uint64_t limit_ = kLeastLimit;  // of in_flight_bytes_

  std::uint64_t fragment_ = kLeastFragment;
  Time paced_until_{};
  bool trickles_ = false;
  bool searching_ = true;  // no queue has been seen yet

  Confirmed confirmed_;
  Confirmed after_gap_;            // the first confirmation that counts after a gap
  std::uint64_t counts_from_ = 0;  // the position after that gap
  Time sent_at_{};
  Time ran_dry_at_{};

  static constexpr std::size_t kRounds = 16;
  std::array<double, kRounds> rates_{};  // of the recent rounds; 0: none yet
  std::size_t next_rate_ = 0;
  double rate_ = 0;  // reached by a quarter of the rounds
  std::uint64_t sent_position_ = 0;
  std::uint64_t round_ends_at_ = 0;  // a position; so is the next
  std::uint64_t measures_from_ = 0;

  static constexpr std::size_t kRecent = 16;
  std::array<Flight, kRecent> recent_{};
  std::size_t flights_ = 0;  // since the link began
  SlidingMinimum shortest_;  // round trip
  SlidingMinimum nearest_;   // one way
  SlidingMinimum longest_;   // negated; the longest round trip without its queue

  Uplink::Sent foreground_seen_;
  Time foreground_until_{};
  std::uint64_t unmeasured_ = 0;  // foreground bytes since it was last done
};

}  // namespace strait::net
