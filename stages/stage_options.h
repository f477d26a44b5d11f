#pragma once

#include <c10/core/Device.h>

#include "framework/data/token_file.h"
#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "framework/sync/methods.h"
#include "framework/trace/span_log.h"
#include "models/model_config.h"
#include "models/model_description.h"
#include "schedules/action.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary_codecs.h"
#include "stages/preference.h"
#include "stages/replica_sync.h"
#include "stages/stage_loop.h"

namespace strait::stages {

// A chunk of a stage and its two boundaries. The options of a boundary that does not exist (at an
// end of the pipeline, or between two chunks of the same stage) are ignored.
struct ChunkPlan {
  models::LayerRange layers{};
  BoundaryOptions upper;
  BoundaryOptions lower;
};

// Periodic checkpoints are written while the stage trains; see Stage::snapshot().
struct SnapshotOptions {
  std::uint64_t memory_bytes = 0;  // for copies, at most
};

struct StageOptions {
  models::ModelConfig model;
  std::vector<ChunkPlan> chunks;  // by ChunkIndex; at least one
  at::ScalarType dtype = at::kFloat;
  // The device of weights, gradients, activations, and moments that are not off-loaded. Codecs,
  // links, the sync engine and checkpoints work in host memory.
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;
  bool recompute = false;
  // Activations of waiting micro-batches on a device, from this number of bytes on, are in host
  // memory. Absent: they stay on the device.
  std::optional<std::int64_t> offload_from = {};
  double clip = 1.0;
  double noise = 0;  // Pass::noise in training
  PreferenceOptions preference;
  // Size of the token file. Activation caches need it on every stage.
  std::int64_t training_rows = 0;
  std::int64_t row_tokens = 0;  // of one row
  // Of FrozenRows: a run of several epochs whose layers below the first trained one draw no random
  // numbers, and whose boundaries there are raw. The same on all stages of a replica. No
  // entry_bytes: none.
  codec::CacheLimits frozen_rows = {};
  std::filesystem::path folder = {};            // of their file
  at::ScalarType evaluation_wire = at::kFloat;  // of the raw codec in evaluation
  AdamWOptions adamw;                           // without names for Muon
  bool muon = false;                            // updates matrices of blocks
  sync::SyncSettings sync;                      // used with several replicas
  // For a fixed membership.
  GroupOptions group = {};
  BatchOptions batch;
  LoopOptions loop;
  std::optional<SnapshotOptions> snapshots = {};  // none: training pauses for checkpoints
  schedules::ActionList training;
  schedules::ActionList evaluation;
};

// The links of a chunk. Null at the ends of the pipeline, and between consecutive chunks of the
// same stage.
struct ChunkLinks {
  std::unique_ptr<net::Link> upstream;
  std::unique_ptr<net::Link> downstream;
  std::string upstream_name;  // of the peer in reports: "stage 0 (host a)"
  std::string downstream_name;
};

struct StageLinks {
  std::vector<ChunkLinks> chunks;  // by ChunkIndex
  std::unique_ptr<net::Link> tie;  // null if no weight is shared with another stage
  // To the same stage of the other replicas, by replica; null at the own index, empty with one
  // replica.
  std::vector<std::unique_ptr<net::Link>> replicas;
  // The same between first stages, for consensus rounds; empty on all other stages.
  std::vector<std::unique_ptr<net::Link>> consensus;
  // Announces evictions and rejoins; outlives the stage. Null: the membership is fixed. With a
  // tracker, links to other replicas must be able to reconnect (net::ReplaceableLink).
  sync::MembershipTracker* tracker = nullptr;
  trace::SpanLog* spans = nullptr;  // of what boundaries do; outlives the stage. Null: none
  std::optional<RejoinOptions> rejoin = {};  // absent: this replica is a member from the start
};

// Null on stages that need no tokens.
struct StageData {
  std::shared_ptr<const data::TokenFile> training;
  std::shared_ptr<const data::TokenFile> evaluation;
};

}  // namespace strait::stages
