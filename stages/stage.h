#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary.h"
#include "stages/boundary_traffic.h"
#include "stages/head_vote.h"
#include "stages/replica_sync.h"
#include "stages/stage_loop.h"
#include "stages/stage_options.h"
#include "stages/stage_state.h"

namespace strait::stages {

// One stage, put together: the only place that looks which ends of the pipeline its chunks have,
// and gives each its port. Owns everything a stage works with; runs on the thread that calls run().
class Stage {
 public:
  explicit Stage(const StageOptions& options);
  ~Stage();

  // Random weights as the model's family draws them; the same for every partition.
  void initialize();
  AdamW& optimizer() { return *optimizer_; }
  const WaitClock& waits() const { return waits_; }
  // Before run(), once. `wishes` is asked with every vote at the head of the pipeline.
  void connect(StageLinks links, const StageData& data, std::function<Wishes()> wishes);

  // For reports; null where there is none.
  net::Link* upstream_link(ChunkIndex chunk = {});
  net::Link* downstream_link(ChunkIndex chunk = {});
  net::Link* tie_link();
  net::Link* replica_link(std::size_t replica) const;
  net::Link* vote_link(std::size_t replica) const;

  // Weights, moments and what the sync method keeps, for a checkpoint. They share memory with the
  // stage; on the thread of run(), where its observer hears of a checkpoint, or when run() is over.
  std::vector<tensors::NamedTensor> saved_tensors() const { return sync_->saved_tensors(); }
  // The model that the replicas agree on; likewise.
  std::vector<tensors::NamedTensor> model() const { return sync_->model(); }
  // Before connect(). `exact`: the checkpoint is of a run with these replicas and this sync method,
  // so that every replica gets its own state back; else all go on from what they had agreed on.
  void restore(const ReadTensor& read, bool exact) { sync_->restore(read, exact); }

  // What the ends of boundaries remember of samples, for a checkpoint; empty where nothing is. The
  // tensors share the caches' memory, and their names are the boundary's, sent and received apart:
  // "cache/boundary-0/1/sent/…" for replica 1. On the thread of run(), before it or where its
  // observer hears of a checkpoint: by then nothing of a later step may have been sent to this
  // stage.
  std::vector<tensors::NamedTensor> saved_caches() const;
  // Before connect(). Asks for every tensor that saved_caches() of the same options had, and throws
  // StoreError where one does not fit. Without it the caches start empty, at both ends or at one:
  // then the other's changes are answered by a request for whole rows.
  void restore_caches(const ReadTensor& read);

  // Of the membership of the replicas; on the thread of run().
  std::uint32_t epoch() const { return sync_->members().epoch; }
  sync::SyncTraffic sync_traffic() const;  // so far, votes included; any thread, after connect()
  // So far, of every end that is connected, sent ahead of received; any thread, after connect().
  std::vector<BoundaryTraffic> traffic() const;

  store::Step run(StageObserver& observer);

 private:
  struct Seat {  // a chunk, its boundaries and its ports
    std::unique_ptr<models::Model> model;
    std::unique_ptr<Chunk> chunk;
    std::unique_ptr<Boundary> upper;
    std::unique_ptr<Boundary> lower;
    std::unique_ptr<Upstream> upstream;
    std::unique_ptr<Downstream> downstream;
  };

  static std::vector<Seat> make_seats(const StageOptions& options);
  static models::TiedWeight share_tied(const std::vector<Seat>& seats);
  std::unique_ptr<Boundary> make_boundary(const SeatOptions& seat, BoundarySide side) const;
  std::vector<Boundary*> boundaries() const;  // that are connected, by seat, upper first
  std::vector<models::LayerRange> layers() const;
  std::vector<models::Parameter> all_parameters() const;
  std::vector<std::uint32_t> places() const;
  void connect_upstream(std::size_t seat, SeatLinks& links);
  void connect_downstream(std::size_t seat, SeatLinks& links);
  void connect_head(StageLinks& links, std::function<Wishes()> wishes);
  StepVerdict settle_at_head(StepReport report, Wishes wishes);
  // Ends the links to replicas that are no members, so that nobody sends or waits there.
  void part_from_others(const std::vector<std::uint32_t>& members) const;
  void connect_tie(std::unique_ptr<net::Link> link);
  Downstream& below() const;

  StageOptions options_;
  WaitClock waits_;
  std::vector<Seat> seats_;
  models::TiedWeight tied_;
  std::vector<models::Parameter> parameters_;
  std::vector<std::uint32_t> places_;  // of these in the model
  sync::Layout layout_;
  sync::MembershipTracker* tracker_ = nullptr;
  std::uint32_t saved_for_ = 0;  // the newest wish for a checkpoint that all have agreed on
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<ReplicaSync> sync_;
  std::unique_ptr<HeadVote> votes_;
  std::unique_ptr<BatchSource> source_;
  std::vector<std::unique_ptr<WeightTie>> ties_;
};

}  // namespace strait::stages
