#pragma once

#include "framework/tensors/snapshot.h"
#include "models/model.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary.h"
#include "stages/frozen_rows.h"
#include "stages/replica_sync.h"
#include "stages/stage_loop.h"
#include "stages/stage_options.h"
#include "stages/stage_state.h"
#include "stages/step_decision.h"

namespace strait::stages {

class ReaderTie;
struct LinkTieOptions;

// One stage: constructs and owns all of its parts, and chooses the ports of every chunk. Runs on
// the thread that calls run().
class Stage {
 public:
  explicit Stage(const StageOptions& options);
  ~Stage();

  // Random weights, drawn as the model's family does; the same for every partition.
  void initialize();
  // The model's own weights, including frozen ones. Adapters are drawn as by initialize().
  void load(const ReadTensor& read);
  // Adapters and saved modules of another training; for a model without adapters all weights.
  void load_trained(const ReadTensor& read) { load_weights(*optimizer_, read); }
  // If so, a checkpoint has only part of the weights, and restore() must follow load() or
  // initialize().
  bool has_frozen_weights() const { return !frozen_.empty(); }
  AdamW& optimizer() { return *optimizer_; }
  const WaitClock& waits() const { return waits_; }
  const std::string& group_text() const { return sync_->group_text(); }
  // The model that answers are compared with, where it is neither the model that training begins
  // with nor that model without adapters: `load` assigns its value to a parameter. Before run().
  void set_reference(std::function<void(const models::Parameter&)> load) {
    load_reference_ = std::move(load);
  }
  // Called once before run(). On a first stage `requests` is called in every consensus round.
  void connect(StageLinks links, const StageData& data, std::function<Requests()> requests);

  // Weights, moments and slots of the sync method, for a checkpoint. They share memory with the
  // stage. Call from `save` of run(), or after run().
  std::vector<tensors::NamedTensor> saved_tensors() const;
  // The model that the replicas agree on; same rules.
  std::vector<tensors::NamedTensor> model() const { return sync_->model(); }
  // Called before connect(). `exact`: the checkpoint has the same replicas and sync method, so each
  // replica restores its own state. Otherwise all start with the agreed model. StoreError if the
  // frozen weights are not those of the checkpoint's run.
  void restore(const ReadTensor& read, const HasTensor& has, bool exact);

  // The activation caches of all boundaries, for a checkpoint; empty without caches. The tensors
  // share the caches' memory. Names contain boundary, replica and direction:
  // "cache/boundary-0/1/sent/…" for replica 1. Call before run() or from `save` of run(), when no
  // data of a later step has been sent to this stage.
  std::vector<tensors::NamedTensor> saved_caches() const;

  // The state after `steps` steps, for a thread that writes it while the stage trains. Call it from
  // `save` of run(), which returns the first part, and close each snapshot when it is written.
  // Names are those of model(), saved_tensors() and saved_caches(). Without StageOptions::snapshots
  // the stage must not train before they are written.
  struct Snapshots {
    // The tensors of model() that are saved here, in the order of a file, then all others.
    std::shared_ptr<tensors::Snapshot> state;
    std::size_t weights = 0;  // number of tensors of model()
    // Of each cache, with the prefix of its names.
    std::vector<std::pair<std::string, std::shared_ptr<tensors::Snapshot>>> caches;

    void close() const;
  };
  Snapshots snapshot(store::Step steps);
  // Called before connect(). Reads every tensor that saved_caches() returns for the same options;
  // throws StoreError if one does not fit. Without this call the caches start empty. If only one
  // end has its cache, changes whose base is missing are resent as whole rows.
  void restore_caches(const ReadTensor& read, const HasTensor& has);

  // The epoch of the membership. Call on the thread of run().
  std::uint32_t epoch() const { return sync_->members().epoch; }
  // The traffic of all connected ends so far, sent before received. Any thread, after connect().
  std::vector<BoundaryTraffic> traffic() const;

  // See StageLoop::run(). `keep`: saves checkpoints in memory.
  store::Step run(StageObserver& observer, SaveCheckpoint save, SaveCheckpoint keep = {});

 private:
  static std::vector<ChunkSlot> make_slots(const StageOptions& options, int first_trained_layer,
                                           FrozenRows* frozen_rows, ActivationOffload* offload);
  static models::TiedWeight share_tied(const std::vector<ChunkSlot>& slots);
  std::unique_ptr<Boundary> make_boundary(const ChunkPlan& chunk, BoundarySide side) const;
  std::vector<Boundary*> boundaries() const;  // connected ones, by slot, upper first
  std::vector<models::LayerRange> layers() const;
  // The trained parameters, or the frozen ones.
  std::vector<models::Parameter> own_parameters(bool trained) const;
  bool gradients_cross(int layer_above) const { return first_trained_layer_ <= layer_above; }
  std::vector<std::uint32_t> parameter_indices() const;
  void connect_upstream(std::size_t slot, ChunkLinks& links, trace::SpanLog* spans);
  void connect_downstream(std::size_t slot, ChunkLinks& links, trace::SpanLog* spans);
  void connect_first_stage(StageLinks& links, ReaderTie* tie, std::function<Requests()> requests);
  // Null if there is none.
  net::Link* replica_link(std::size_t replica) const { return sync_->link(replica); }
  net::Link* consensus_link(std::size_t replica) const;
  // Aborts the links to replicas that are not members, so that no thread sends or waits there.
  void disconnect_evicted(const std::vector<std::uint32_t>& members) const;
  // Returns the embedding's end of a tie between two stages, or null.
  ReaderTie* connect_tie(std::unique_ptr<net::Link> link);
  LinkTieOptions tie_options(const BoundaryOptions& boundary) const;
  Downstream& below() const;
  // Computes the values of the reference model for all rows.
  void compare_with_reference(StageLoop& loop);

  StageOptions options_;
  WaitClock waits_;
  const std::shared_ptr<tensors::SnapshotMemory> snapshot_memory_;
  const models::ModelDescription description_;
  const int first_trained_layer_;
  const std::unique_ptr<FrozenRows> frozen_rows_;     // null: every row is computed anew
  const std::unique_ptr<ActivationOffload> offload_;  // null: activations stay where they are
  std::vector<ChunkSlot> slots_;
  models::TiedWeight tied_;                    // empty: there is none, or it is frozen
  std::vector<models::Parameter> parameters_;  // trained
  std::vector<models::Parameter> frozen_;
  mutable std::vector<tensors::NamedTensor> frozen_hashes_;  // computed for the first checkpoint
  // of parameters_, among all parameters of the model
  std::vector<std::uint32_t> parameter_indices_;
  sync::Layout layout_;
  sync::MembershipTracker* tracker_ = nullptr;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<ReplicaSync> sync_;
  std::unique_ptr<ReferenceValues> references_;  // null without a reference
  std::function<void(const models::Parameter&)> load_reference_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<StepDecider> decider_;  // null except on a first stage
  std::unique_ptr<WeightTie> tie_;        // null if this stage has no tied weight
};

}  // namespace strait::stages
