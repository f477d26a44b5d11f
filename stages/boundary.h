#pragma once

#include "framework/codec/choice.h"
#include "framework/codec/traffic.h"
#include "stages/boundary_codecs.h"
#include "stages/boundary_end.h"
#include "stages/stage_state.h"

namespace strait::stages {

// Training traffic of one direction of one boundary, counted at one end.
struct BoundaryTraffic {
  using Direction = codec::Direction;
  std::string boundary;  // BoundaryOptions::name
  Direction direction = Direction::forward;
  bool sent = false;  // by this end; otherwise received
  codec::Traffic traffic;
  bool operator==(const BoundaryTraffic&) const = default;
};

// The traffic since `before`; both readings are of the same ends in the same order.
std::vector<BoundaryTraffic> difference(std::span<const BoundaryTraffic> after,
                                        std::span<const BoundaryTraffic> before);

// A decision on the encoding that `auto` uses in a direction that this end sends.
struct CodecDecision {
  std::string boundary;
  BoundaryTraffic::Direction direction = BoundaryTraffic::Direction::forward;
  CodecChooser::Made made;
};

// One end of a boundary. It is constructed with codecs only, so that their caches can be restored;
// connect() adds the link.
//
// Threads: as for BoundaryEnd; once connected, any thread may call sent(), received() and
// take_decisions().
class Boundary {
 public:
  Boundary(BoundaryOptions options, BoundarySetting setting);
  Boundary(const Boundary&) = delete;
  Boundary& operator=(const Boundary&) = delete;

  // `spans`: of its messages; null: they are not recorded.
  BoundaryEnd& connect(std::unique_ptr<net::Link> link, WaitClock& waits, std::string peer,
                       trace::SpanLog* spans = nullptr);
  net::Link* link() { return end_ ? &end_->link() : nullptr; }

  // The activation caches; see Stage.
  std::vector<tensors::NamedTensor> saved_cache() const;
  // With the prefixes of their names; see codec::ActivationCache::snapshot().
  using CacheSnapshot = std::pair<std::string, std::shared_ptr<tensors::Snapshot>>;
  std::vector<CacheSnapshot> cache_snapshots(store::Step steps);
  void restore_cache(const ReadTensor& read, const HasTensor& has);

  BoundaryTraffic sent() const;
  BoundaryTraffic received() const;
  CodingSeconds take_coding() { return end_->take_coding(); }
  // See CodecChooser.
  std::vector<CodecDecision> take_decisions();

 private:
  BoundaryTraffic::Direction sends() const;

  const BoundaryOptions options_;
  BoundarySetting setting_;
  BoundaryCodecs codecs_;                          // until connect() moves them to end_
  std::array<codec::ActivationCache*, 2> caches_;  // in codecs_, later in end_
  std::optional<codec::ChoiceLimits> limits_;      // of an `auto` direction that this end sends
  std::unique_ptr<CodecChooser> chooser_;
  // After chooser_, which its sending thread calls: members are destroyed in reverse order.
  std::unique_ptr<BoundaryEnd> end_;
};

}  // namespace strait::stages
