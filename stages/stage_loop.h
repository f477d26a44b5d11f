#pragma once

#include "framework/tensors/snapshot.h"
#include "framework/trace/early_stop.h"
#include "models/model.h"
#include "schedules/action.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary.h"
#include "stages/chunk.h"
#include "stages/gradients.h"
#include "stages/ports.h"
#include "stages/reference_values.h"
#include "stages/replica_sync.h"
#include "stages/stage_observer.h"
#include "stages/step_agreement.h"
#include "stages/wait_clock.h"
#include "stages/weight_tie.h"

namespace strait::stages {

struct LoopOptions {
  store::Step first{};                // number of steps trained before, if resumed
  store::Step last{};                 // steps of the whole run
  std::int64_t evaluate_every = 0;    // steps; 0: only after the last step
  std::int64_t checkpoint_every = 0;  // steps; 0: only after the last step
  std::int64_t memory_every = 0;      // steps; 0: no checkpoints in memory
  bool evaluate = false;              // there is evaluation data
  trace::EarlyStop early_stop{};      // with what the evaluations before `first` have shown
  // Answers are compared with a reference model. Its forwards come before the first pass that needs
  // their values; with `reference_first` all of them before the first step, because the model that
  // trains does not contain the reference.
  bool reference = false;
  bool reference_first = false;
  LearningRateOptions learning_rate;
  // The actions of an evaluation that is sharded over this many replicas, for shard `index`. Needed
  // if the membership may change.
  std::function<schedules::ActionList(std::size_t replicas, std::size_t index)> evaluation_shard;
};

// Whether something that happens every `every` steps happens after this one; 0: never.
inline bool is_due(store::Step steps, std::int64_t every) {
  return every > 0 && number(steps) % every == 0;
}

struct CheckpointResult {
  bool complete = true;  // false: a replica was evicted meanwhile, and the checkpoint is repeated
  // This replica becomes a member here. The same on all processes of all replicas.
  std::optional<sync::Rejoin> rejoin = {};
  // Still being written, and preserved before the stage changes its contents. Null: all is written.
  std::shared_ptr<tensors::Snapshot> snapshot = {};
};

// Saves the state after `steps` steps; the stage does not change it before this returns.
using SaveCheckpoint = std::function<CheckpointResult(store::Step steps)>;

// Where checkpoints go.
struct CheckpointTargets {
  SaveCheckpoint disk;
  SaveCheckpoint memory = {};  // in steps of LoopOptions::memory_every without a checkpoint on disk
};

// One chunk with its boundaries and ports.
struct ChunkSlot {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<Chunk> chunk;
  std::unique_ptr<Boundary> upper;
  std::unique_ptr<Boundary> lower;
  std::unique_ptr<Upstream> upstream;
  std::unique_ptr<Downstream> downstream;
};

// The parts of a stage, owned by Stage.
struct StageParts {
  const std::vector<ChunkSlot>& slots;  // by ChunkIndex
  // The port to the stages below, for their reports and for decisions. This stage's own report goes
  // to the first slot's upstream, over which the last gradients of a step are sent.
  Downstream& below;
  const std::vector<models::Parameter>& parameters;
  // of these parameters, among all of the model
  const std::vector<std::uint32_t>& parameter_indices;
  Gradients& gradients;
  AdamW& optimizer;
  ReplicaSync& sync;
  BatchSource& source;
  WeightTie* tie;               // null if this stage has no tied weight
  ReferenceValues* references;  // null: LoopOptions::reference is false
  WaitClock& waits;
  std::vector<Boundary*> boundaries;  // connected ones, by slot, upper first
  const tensors::SnapshotMemory& snapshot_memory;
};

// The training loop of one process: plays the action list of every step, decides on the result with
// all other processes, and updates the weights.
class StageLoop {
 public:
  StageLoop(StageParts parts, schedules::ActionList training, schedules::ActionList evaluation,
            LoopOptions options, StageObserver& observer, CheckpointTargets targets);

  // Returns the number of finished steps, at the end of the run, after a requested stop or where
  // `early_stop` says so: all processes see the same evaluations. The last state has been saved. A
  // skipped step is never saved, because its loss or gradient was not finite; a checkpoint that is
  // due then follows the next update.
  store::Step run();
  // Plays the forwards of the reference for all rows of this replica.
  void play_references();

 private:
  StepDecision train(store::Step step);
  // The decision says whether a stop was requested, or is due by the loss.
  StepDecision evaluate(store::Step steps);
  void save(store::Step steps, const SaveCheckpoint& target);
  // The state is about to change.
  void preserve_snapshot();
  double take_checkpoint_seconds();

  void play(const Phase& phase, const schedules::ActionList& actions);
  // Unless its values are known.
  void play_reference(store::Step step, Phase::Reference samples);
  void act(const Phase& phase, const schedules::Action& action);
  // The norms of this stage, with the report of all stages below it.
  bool ends_jointly(store::Step step) const;
  StepReport report(const Phase& phase);
  // Sends the report up and the decision down.
  StepDecision exchange(const StepReport& report);
  void shard_evaluation();
  void update(store::Step step, const StepDecision& decision, double learning_rate);
  void summarize_experts(trace::StepMetrics& metrics) const;
  // Traffic and codec decisions since the last step.
  void summarize_boundaries(StepSummary& summary);

  StageParts parts_;
  schedules::ActionList training_;
  schedules::ActionList evaluation_;
  LoopOptions options_;
  MicroBatch last_micro_batch_{};
  std::optional<std::vector<std::uint32_t>> sharded_;  // replicas that share evaluations
  StageObserver& observer_;
  CheckpointTargets targets_;
  const StepAgreement agreement_;
  std::vector<BoundaryTraffic> sent_;  // at the end of the last step
  bool save_requested_ = false;        // after this step, or after the next one that is not skipped
  std::shared_ptr<tensors::Snapshot> snapshot_;
  double checkpoint_seconds_ = 0;  // spent on checkpoints since the last report
  double snapshot_waited_ = 0;     // snapshot_memory's value in the last report
};

}  // namespace strait::stages
