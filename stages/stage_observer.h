#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/sync/sync_rounds.h"
#include "schedules/action.h"
#include "stages/agreement.h"
#include "stages/boundary_traffic.h"
#include "stages/phase.h"

namespace strait::stages {

// What a finished step looked like from one process.
struct StepSummary {
  StepVerdict verdict;
  double learning_rate = 0;
  double seconds = 0;       // since the previous step ended
  double busy_seconds = 0;  // of these, not waiting
  // What this process sent over boundaries in this step, each direction by itself. Exact: by the
  // end of a step all of it is encoded.
  std::vector<BoundaryTraffic> sent;
  std::vector<CodecSwitch> switches;  // of codecs on `auto`, since the previous step ended
  sync::SyncTraffic sync;             // of this process with the other replicas, so far
  double sync_waited_seconds = 0;     // for that, instead of computing; so far
};

// What became of a checkpoint.
struct Saved {
  bool made =
      true;  // false: a replica left meanwhile, and those that are left have to make it again
  // A replica takes part from here on: all processes of all replicas hear the same.
  std::optional<sync::Rejoin> arrival = {};
};

// Who looks on while a stage works: metrics, traces, checkpoints and stop requests all come in
// here, between actions, on the compute thread.
class StageObserver {
 public:
  StageObserver() = default;
  StageObserver(const StageObserver&) = delete;
  StageObserver& operator=(const StageObserver&) = delete;
  virtual ~StageObserver() = default;

  virtual void before(const Phase& phase, const schedules::Action& action) = 0;
  virtual void after(const Phase& phase, const schedules::Action& action) = 0;
  virtual void trained(const StepSummary& summary) = 0;
  virtual void evaluated(const StepVerdict& verdict) = 0;
  // State is that of `steps` finished steps; nothing moves until this returns.
  virtual Saved checkpoint(store::Step steps) = 0;
};

}  // namespace strait::stages
