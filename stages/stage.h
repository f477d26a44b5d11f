#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/token_file.h"
#include "models/model.h"
#include "models/model_config.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary.h"
#include "stages/boundary_options.h"
#include "stages/boundary_traffic.h"
#include "stages/head_vote.h"
#include "stages/replica_sync.h"
#include "stages/stage_loop.h"
#include "stages/stage_state.h"

namespace strait::stages {

struct StageOptions {
  models::ModelConfig model;
  models::LayerRange layers{};
  at::ScalarType dtype = at::kFloat;
  std::uint64_t seed = 0;
  bool recompute = false;
  double clip = 1.0;
  BoundaryOptions upper;  // of the ends that this stage has; where there is none they stay as
  BoundaryOptions lower;  // they are here
  std::int64_t training_rows = 0;  // of the token file, and the tokens of one of them: every stage
  std::int64_t row_tokens = 0;     // knows these, to remember samples by
  at::ScalarType wire = at::kFloat;             // of the raw codec in training
  at::ScalarType evaluation_wire = at::kFloat;  // likewise in evaluation
  AdamWOptions adamw;
  sync::SyncSettings sync;  // of several replicas
  BatchOptions batch;
  LoopOptions loop;
  schedules::ActionList training;
  schedules::ActionList evaluation;
};

// What a stage is connected to; null where the pipeline ends or where no weight is shared.
struct StageLinks {
  std::unique_ptr<net::Link> upstream;
  std::unique_ptr<net::Link> downstream;
  std::unique_ptr<net::Link> tie;
  // To the same stage of the other replicas, and between the heads of the pipelines: by replica,
  // null at the own place; empty where there is one replica, and votes at every other stage.
  std::vector<std::unique_ptr<net::Link>> replicas;
  std::vector<std::unique_ptr<net::Link>> votes;
  std::string upstream_name;  // how reports call them: "stage 0 (host a)"
  std::string downstream_name;
};

// Null where this stage needs no tokens.
struct StageData {
  std::shared_ptr<const store::TokenFile> training;
  std::shared_ptr<const store::TokenFile> evaluation;
};

// One stage, put together: the only place that looks which ends of the pipeline it has, and gives
// each its port. Owns everything a stage works with; runs on the thread that calls run().
class Stage {
 public:
  explicit Stage(const StageOptions& options);
  ~Stage();

  // Random weights as the model's family draws them; the same for every partition.
  void initialize();
  AdamW& optimizer() { return *optimizer_; }
  const WaitClock& waits() const { return waits_; }
  // Before run(), once. `stop_requested` is asked once per step at the head of the pipeline.
  void connect(StageLinks links, const StageData& data, std::function<bool()> stop_requested);

  // For reports; null where there is none.
  net::Link* upstream_link();
  net::Link* downstream_link();
  net::Link* tie_link();
  const net::Link* replica_link(std::size_t replica) const;
  const net::Link* vote_link(std::size_t replica) const;

  // Weights, moments and what the sync method keeps, for a checkpoint. They share memory with the
  // stage; on the thread of run(), where its observer hears of a checkpoint, or when run() is over.
  std::vector<store::NamedTensor> saved_tensors() const { return sync_->saved_tensors(); }
  // Before connect(). `exact`: the checkpoint is of a run with these replicas and this sync method,
  // so that every replica gets its own state back; else all go on from what they had agreed on.
  void restore(const ReadTensor& read, bool exact) { sync_->restore(read, exact); }

  // What the ends of boundaries remember of samples, for a checkpoint; empty where nothing is. The
  // tensors share the caches' memory, and their names are the boundary's, sent and received apart:
  // "cache/boundary-0/1/sent/…" for replica 1. On the thread of run(), before it or where its
  // observer hears of a checkpoint: by then nothing of a later step may have been sent to this
  // stage.
  std::vector<store::NamedTensor> saved_caches() const;
  // Before connect(). Asks for every tensor that saved_caches() of the same options had, and throws
  // StoreError where one does not fit. Without it the caches start empty, at both ends or at one:
  // then the other's changes are answered by a request for whole rows.
  void restore_caches(const ReadTensor& read);

  sync::SyncTraffic sync_traffic() const;  // so far, votes included; any thread, after connect()
  // So far, of every end that is connected, sent ahead of received; any thread, after connect().
  std::vector<BoundaryTraffic> traffic() const;

  store::Step run(StageObserver& observer);

 private:
  std::unique_ptr<Boundary> make_boundary(BoundarySide side) const;
  std::vector<Boundary*> boundaries() const;  // that are connected, upper first
  void connect_upstream(StageLinks& links, std::function<bool()> stop_requested);
  StepVerdict settle_at_head(StepReport report, bool stop);
  void connect_downstream(StageLinks& links);
  void connect_tie(std::unique_ptr<net::Link> link);

  StageOptions options_;
  WaitClock waits_;
  std::unique_ptr<models::Model> model_;
  std::vector<models::Parameter> parameters_;
  sync::Layout layout_;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<ReplicaSync> sync_;
  std::unique_ptr<HeadVote> votes_;
  std::unique_ptr<Chunk> chunk_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<Boundary> upper_;
  std::unique_ptr<Boundary> lower_;
  std::unique_ptr<Upstream> upstream_;
  std::unique_ptr<Downstream> downstream_;
  std::vector<std::unique_ptr<WeightTie>> ties_;
};

}  // namespace strait::stages
