#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "schedules/action.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary.h"
#include "stages/chunk.h"
#include "stages/gradients.h"
#include "stages/learning_rate.h"
#include "stages/ports.h"
#include "stages/replica_sync.h"
#include "stages/stage_observer.h"
#include "stages/wait_clock.h"
#include "stages/weight_tie.h"

namespace strait::stages {

struct LoopOptions {
  store::Step first{};                // steps already trained: where a resumed run goes on
  store::Step last{};                 // steps of the whole run
  std::int64_t evaluate_every = 0;    // 0: only behind the last step
  std::int64_t checkpoint_every = 0;  // 0: only behind the last step
  bool evaluate = false;              // there is something to evaluate on
  LearningRateOptions learning_rate;
  // The actions of an evaluation that is dealt out to so many replicas, to the one at this place;
  // of use where replicas may leave.
  std::function<schedules::ActionList(std::size_t replicas, std::size_t place)> evaluation_among;
};

// What a stage works on and with. The loop owns none of it.
struct StageParts {
  struct Seat {  // a chunk and what it is connected to
    Chunk& chunk;
    Upstream& upstream;
    Downstream& downstream;
  };
  std::vector<Seat> seats;  // by ChunkIndex, head of the pipeline first
  // Behind which the stages below are asked for reports and told verdicts. Those of the others are
  // given at the first seat's upstream: its gradients are the last to leave.
  Downstream& below;
  const std::vector<models::Parameter>& parameters;
  const std::vector<std::uint32_t>& places;  // of these, among all of the model's
  Gradients& gradients;
  AdamW& optimizer;
  ReplicaSync& sync;
  BatchSource& source;
  std::vector<std::unique_ptr<WeightTie>>& ties;
  WaitClock& waits;
  std::vector<Boundary*> boundaries;  // that are connected, upper first
};

// One process's share of a run: interprets the action list of every step, agrees on the result with
// the other stages, updates. The whole of training is in this class; everything else looks on.
class StageLoop {
 public:
  StageLoop(StageParts parts, schedules::ActionList training, schedules::ActionList evaluation,
            LoopOptions options, StageObserver& observer);

  // Returns the number of steps trained when the run is over or somebody asked to stop; by then
  // that state is in a checkpoint.
  store::Step run();

 private:
  void play(const Phase& phase, const schedules::ActionList& actions);
  void act(const Phase& phase, const schedules::Action& action);
  StepReport report(const Phase& phase);
  // Says what this process and those behind it have, and hears what all have decided on it.
  StepVerdict settle(const StepReport& report);
  // Syncs, reports and hears until the step is decided.
  StepVerdict agree_on_step(const Phase& phase);
  // Between steps: syncs what `holds` waits for, and brings all processes to one membership. False:
  // others had agreed on it in the membership before, and come to this one with their next vote.
  template <class Holds>
  bool gather(store::Step steps, Holds holds);
  void regroup(const StepVerdict& verdict);
  // Evaluations, as those who take part now.
  void deal();
  void save(store::Step steps);
  StepVerdict train(store::Step step);
  bool evaluate(store::Step steps);
  // What was sent since this was last asked.
  std::vector<BoundaryTraffic> sent_since();
  static bool due(store::Step steps, std::int64_t every);

  StageParts parts_;
  schedules::ActionList training_;
  schedules::ActionList evaluation_;
  LoopOptions options_;
  MicroBatch last_micro_batch_{};
  StageObserver& observer_;
  std::vector<BoundaryTraffic> sent_;  // up to the end of the last step
  bool save_wanted_ = false;           // a checkpoint, behind this step
};

}  // namespace strait::stages
