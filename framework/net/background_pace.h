#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "framework/net/uplink.h"

namespace strait::net {

// When a background link may put a chunk on the wire, and how large. Pure: no clock, no lock.
//
// What already lies in queues cannot yield any more, so little may lie there: the bytes in flight
// are held at what the path carries in its own round trip and kQueue more. Both are measured from
// the link's confirmations: the rate as what a quarter of the last rounds reached, the round trip
// as the shortest of the last seconds. That fills an idle path and adds about kQueue to what comes
// behind. Single confirmations may be late for other reasons, a busy host's among them; a queue is
// what all of the recent ones have waited in.
//
// While a foreground link has bytes that the uplink has not carried, only a trickle goes. Whether
// it has carried them is known when they are confirmed, or, on a long path, by the time that they
// need at the rate which that link has measured, or else this one. A trickle that meets no queue
// shows that they are through sooner.
class BackgroundPace {
 public:
  using Time = Uplink::Time;

  static constexpr std::chrono::microseconds kQueue{5000};  // shared by all background links
  static constexpr std::uint64_t kLeastChunk = 4096;
  // Of bytes in flight, for all links: hosts with busy cores confirm late, and look narrow.
  static constexpr std::uint64_t kLeastLimit = std::uint64_t{32} << 10;
  static constexpr std::chrono::milliseconds kTrickleEvery{100};  // a least chunk, for all links

  // How many bytes of a frame may go as one chunk now; 0: none yet, and the uplink knows when to
  // ask again.
  std::uint64_t allowance(Time now, Uplink& uplink);

  // A chunk of these bytes went, framing included, and with it the stream up to this place. Places
  // count bytes of frames.
  void sent(Time now, std::uint64_t place, std::uint64_t bytes, const Uplink& uplink);
  // The peer has the stream up to this place.
  void received(Time now, std::uint64_t place, const Uplink& uplink);

  double bytes_per_second() const { return rate_; }  // of the path; 0: not measured yet

 private:
  using Seconds = std::chrono::duration<double>;

  struct Confirmed {
    std::uint64_t bytes = 0;             // ever
    Time at;                             // when the last of them were
    Time sent_at;                        // and when these had been sent
    std::uint64_t foreground_bytes = 0;  // ever sent until then
  };
  struct InFlight {
    std::uint64_t place = 0;
    std::uint64_t bytes = 0;
    bool filled = false;            // it brought us to the limit
    bool measures = false;          // limited by the path since the last gap, not by a lack of data
    bool trickles = false;          // the foreground was thought to be on the uplink
    std::uint64_t counts_from = 0;  // place behind the last gap
    Time sent_at;
    // As things stood when it went.
    Confirmed confirmed;
    std::uint64_t foreground_bytes = 0;
  };

  std::uint64_t chunk(unsigned links) const;
  bool fills_search(unsigned links) const;
  bool foreground_uses_uplink(Time now, Uplink& uplink);
  void foreground_done(Time now);
  Seconds unmeasured(std::uint64_t bytes);
  void note_round_trip(Time now, Seconds round_trip);
  void measure(Time now, const InFlight& newest);
  void note_rate(double rate);
  void note_gap();
  void end_search_if_known(Time now, const InFlight& newest, const Uplink& uplink);
  void adapt(std::uint64_t fresh, bool filled, Seconds round_trip, const Uplink& uplink);
  Seconds shortest() const { return std::min(shortest_, shortest_before_); }
  double queue(const Uplink& uplink) const;

  std::deque<InFlight> in_flight_;
  std::uint64_t in_flight_bytes_ = 0;
  std::uint64_t limit_ = kLeastLimit;  // for in_flight_bytes_

  std::uint64_t chunk_ = kLeastChunk;
  Time paced_until_{};
  bool trickles_ = false;
  bool searching_ = true;  // no queue was seen yet

  Confirmed confirmed_;
  Confirmed behind_gap_;           // the first that counts
  std::uint64_t counts_from_ = 0;  // of that gap
  Time sent_at_{};
  Time ran_dry_at_{};

  static constexpr std::size_t kRounds = 16;
  std::array<double, kRounds> rates_{};  // one of each round; 0: none yet
  std::size_t next_rate_ = 0;
  double rate_ = 0;  // that a quarter of them reach
  std::uint64_t sent_place_ = 0;
  std::uint64_t round_ends_at_ = 0;  // a place, as the next
  std::uint64_t measures_from_ = 0;

  static constexpr std::size_t kRecent = 16;
  std::array<Seconds, kRecent> recent_{};     // round trips
  std::size_t round_trips_ = 0;               // ever
  Seconds shortest_ = Seconds::max();         // round trip of the last seconds
  Seconds shortest_before_ = Seconds::max();  // and of those before
  Time shortest_since_{};

  Uplink::Sent foreground_seen_;
  Time foreground_until_{};
  std::uint64_t unmeasured_ = 0;  // of the foreground, since it was through
};

}  // namespace strait::net
