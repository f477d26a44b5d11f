#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "launcher/transfer/chunk_set.h"
#include "launcher/transfer/source_pace.h"

namespace strait::transfer {

// Which chunk of one content to ask of whom. What few others have goes first, so that hosts that
// fetch the same get different chunks from the first source and the rest from each other; of those
// who have a chunk, it is asked of the one who is expected to bring it soonest. A chunk is asked of
// one source at a time, so that no byte travels twice. Pure: no clock, no lock.
class FetchPlan {
 public:
  using Time = SourceWindow::Time;
  // Who was told that another gets a chunk waits so long for it; then it insists.
  static constexpr std::chrono::seconds kPatience{2};

  FetchPlan(ChunkSet lacking, std::uint64_t seed);

  const ChunkSet& lacking() const { return lacking_; }  // asked for or not
  bool done() const { return lacking_.empty(); }

  // False: that is no file of this size.
  bool has(std::size_t source, std::span<const ChunkRun> runs);
  // Its uplink is everybody's: of what others have too it is asked only where it is much nearer.
  void spare(std::size_t number) { source(number).spared = true; }
  // What was asked of it is to be asked of others.
  void lost(std::size_t source);

  struct Choice {
    std::uint32_t chunk = 0;
    bool insist = false;
  };
  // What to ask of this source now, if it is the one to ask for anything. `paces`: by source.
  std::optional<Choice> next(std::size_t source, std::span<const SourceWindow> paces, Time now) const;
  void asked(std::size_t source, std::uint32_t chunk);

  // Answers. False: it was not asked for there, so whoever says so errs.
  bool arrived(std::size_t source, std::uint32_t chunk);
  bool missing(std::size_t source, std::uint32_t chunk);
  // `to`: who will have it; nothing where that is nobody we reach.
  bool elsewhere(std::size_t source, std::uint32_t chunk, std::optional<std::size_t> to, Time now);

  bool waits_on(std::size_t source) const;
  bool waits() const { return !asked_.empty(); }

 private:
  struct Redirect {
    std::size_t by = 0;
    std::optional<std::size_t> to;
    Time since;
  };
  struct Source {
    ChunkSet chunks;
    bool there = false;
    bool spared = false;
  };

  bool take_back(std::size_t source, std::uint32_t chunk);
  bool holds(std::size_t source, std::uint32_t chunk) const;
  Source& source(std::size_t number);
  // Nothing: not of this source now. Else whether to insist.
  std::optional<bool> may_ask(std::size_t source, std::uint32_t chunk,
                              std::span<const SourceWindow> paces, Time now) const;

  ChunkSet lacking_;
  std::uint64_t seed_;
  std::vector<Source> sources_;
  std::vector<std::uint16_t> holders_;  // by chunk
  std::map<std::uint32_t, std::size_t> asked_;
  std::map<std::uint32_t, Redirect> redirects_;
};

}  // namespace strait::transfer
