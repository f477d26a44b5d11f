#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

// The request window of one source: as many chunks as its path holds in a round trip (rate times
// round trip), and one more. With fewer the path is idle at times; more would be missing at other
// sources. Pure: no clock.
class SourceWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::duration<double>;
  static constexpr int kLeast = 2;
  static constexpr int kMost = 32;  // fits into the send window of a link

  void set_round_trip(Seconds took);  // of a message that waited for no other
  void requested(Time now);           // one chunk
  void received(Time now, std::uint64_t bytes);
  void declined();  // the source answered without a chunk

  int room() const;  // chunks that may be requested now
  int outstanding() const { return outstanding_; }
  // Until a chunk arrives that is requested now.
  Seconds expected_delay() const;
  Seconds round_trip() const { return round_trip_; }

 private:
  int outstanding_ = 0;
  Seconds round_trip_{0};
  bool round_trip_known_ = false;
  double rate_ = 0;  // bytes a second; 0: not measured yet
  Time measured_from_{};
  std::uint64_t measured_bytes_ = 0;
};

// Which chunk of one content to request from which source. Rarest first, so that hosts that fetch
// the same content get different chunks from the first source and the rest from each other. Of the
// sources of a chunk, the one with the least expected delay is asked. A chunk is requested from one
// source at a time, so that no byte travels twice. Pure: no clock, no lock.
class FetchPlan {
 public:
  using Time = SourceWindow::Time;
  // After a redirect, the first source is asked again after this time, with `force`.
  static constexpr std::chrono::seconds kRedirectTimeout{2};

  FetchPlan(ChunkSet lacking, std::uint64_t seed);

  const ChunkSet& lacking() const { return lacking_; }  // requested or not
  bool done() const { return lacking_.empty(); }

  // The source has these chunks. False: they are out of range.
  bool add_chunks(std::size_t source, std::span<const ChunkRun> runs);
  // The source's uplink is shared by all hosts: prefer other sources unless they are much slower.
  void spare(std::size_t number) { source(number).spared = true; }
  // Requests to this source will not be answered; others may get them.
  void remove_source(std::size_t source);

  struct Choice {
    std::uint32_t chunk = 0;
    bool force = false;  // send it even if another host was sent it before
  };
  // What to request from this source now. Nothing: other sources are better, or all is requested.
  // `windows`: by source.
  std::optional<Choice> next(std::size_t source, std::span<const SourceWindow> windows,
                             Time now) const;
  void requested(std::size_t source, std::uint32_t chunk);

  // Answers. False: the chunk is not requested from this source (any more).
  bool received(std::size_t source, std::uint32_t chunk);
  bool missing(std::size_t source, std::uint32_t chunk);
  // `to`: the source that will have it; nothing where it is not connected with us.
  bool redirected(std::size_t source, std::uint32_t chunk, std::optional<std::size_t> to, Time now);

  bool waits_for(std::size_t source) const;
  bool waits_for(std::size_t source, std::uint32_t chunk) const;
  bool waits() const { return !requested_.empty(); }
  // The source has a chunk that is lacking and requested from no source.
  bool has_open(std::size_t source) const;

 private:
  struct Redirect {
    std::size_t by = 0;
    std::optional<std::size_t> to;
    Time since;
  };
  struct Source {
    ChunkSet chunks;
    bool connected = false;
    bool spared = false;
  };

  bool end_request(std::size_t source, std::uint32_t chunk);
  bool has(std::size_t source, std::uint32_t chunk) const;
  Source& source(std::size_t number);
  // Nothing: not from this source now. Otherwise the `force` of the request.
  std::optional<bool> may_request(std::size_t source, std::uint32_t chunk,
                                  std::span<const SourceWindow> windows, Time now) const;

  ChunkSet lacking_;
  std::uint64_t seed_;
  std::vector<Source> sources_;
  std::vector<std::uint16_t> source_counts_;        // by chunk
  std::map<std::uint32_t, std::size_t> requested_;  // chunk: source
  std::map<std::uint32_t, Redirect> redirects_;     // by chunk
};

}  // namespace strait::transfer
