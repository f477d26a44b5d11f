#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stages/boundary_codecs.h"
#include "stages/boundary_end.h"
#include "stages/boundary_options.h"
#include "stages/boundary_traffic.h"
#include "stages/codec_chooser.h"
#include "stages/stage_state.h"

namespace strait::stages {

// A stage's end of one boundary over its whole life: first codecs alone, so that what they remember
// can be restored, then with a link.
//
// Threads: as BoundaryEnd; traffic() and take_switches() are for any, once connected.
class Boundary {
 public:
  Boundary(BoundaryOptions options, BoundarySetting setting);
  Boundary(const Boundary&) = delete;
  Boundary& operator=(const Boundary&) = delete;

  BoundaryEnd& connect(std::unique_ptr<net::Link> link, WaitClock& waits, std::string peer);
  net::Link* link() { return end_ ? &end_->link() : nullptr; }

  // What this end remembers, if it does; see Stage.
  std::vector<tensors::NamedTensor> saved_cache() const;
  void restore_cache(const ReadTensor& read);

  BoundaryTraffic sent() const;
  BoundaryTraffic received() const;
  // Every change of mind of an `automatic` direction since this was last asked.
  std::vector<CodecSwitch> take_switches();

 private:
  BoundaryTraffic::Direction sends() const;

  const BoundaryOptions options_;
  BoundarySetting setting_;
  BoundaryCodecs codecs_;                      // until connect()
  codec::ActivationCache* cache_;              // of codecs_, wherever they are
  std::optional<codec::ChoiceLimits> limits_;  // of an `automatic` direction that we send
  std::unique_ptr<CodecChooser> chooser_;
  std::unique_ptr<BoundaryEnd> end_;  // its threads ask the chooser: it goes first
};

}  // namespace strait::stages
