#pragma once

#include "framework/sync/sync_rounds.h"
#include "framework/trace/step_metrics.h"
#include "schedules/action.h"
#include "stages/boundary.h"
#include "stages/step_messages.h"

namespace strait::stages {

// The measurements of one process in a finished step.
struct StepSummary {
  StepDecision decision;
  trace::StepMetrics metrics;  // without the bytes on links, which the observer knows
  // Traffic that this process sent over boundaries in this step, by direction. Exact, because all
  // of it is encoded by the end of a step.
  std::vector<BoundaryTraffic> sent;
  std::vector<CodecDecision> codecs;  // of boundaries on `auto`, since the end of the previous step
  sync::SyncTraffic sync;             // of this process with the other replicas, so far
  double sync_waited_seconds = 0;     // waits of the compute thread for the sync, so far
};

// Observes a stage at work, for metrics and traces. Called between actions, on the compute thread.
class StageObserver {
 public:
  StageObserver() = default;
  StageObserver(const StageObserver&) = delete;
  StageObserver& operator=(const StageObserver&) = delete;
  virtual ~StageObserver() = default;

  virtual void before(const Phase& phase, const schedules::Action& action) = 0;
  virtual void after(const Phase& phase, const schedules::Action& action) = 0;
  virtual void trained(const StepSummary& summary) = 0;
  virtual void evaluated(const StepDecision& decision, bool preferences) = 0;
};

}  // namespace strait::stages
