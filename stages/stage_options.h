#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "framework/sync/methods.h"
#include "framework/tensors/token_file.h"
#include "models/model_config.h"
#include "models/model_description.h"
#include "schedules/action.h"
#include "stages/adamw.h"
#include "stages/batch_source.h"
#include "stages/boundary_options.h"
#include "stages/entry.h"
#include "stages/stage_loop.h"

namespace strait::stages {

// A chunk of a stage and what it is connected to.
struct SeatOptions {
  models::LayerRange layers{};
  BoundaryOptions upper;  // of the ends that this chunk has; where there is none they stay as
  BoundaryOptions lower;  // they are here
};

struct StageOptions {
  models::ModelConfig model;
  std::vector<SeatOptions> seats;  // by ChunkIndex; at least one
  at::ScalarType dtype = at::kFloat;
  std::uint64_t seed = 0;
  bool recompute = false;
  double clip = 1.0;
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

// What a chunk is connected to; null where the pipeline ends, and between two chunks that follow
// each other on one stage.
struct SeatLinks {
  std::unique_ptr<net::Link> upstream;
  std::unique_ptr<net::Link> downstream;
  std::string upstream_name;  // how reports call them: "stage 0 (host a)"
  std::string downstream_name;
};

struct StageLinks {
  std::vector<SeatLinks> seats;    // by ChunkIndex
  std::unique_ptr<net::Link> tie;  // null where no weight is shared with another stage
  // To the same stage of the other replicas, and between the heads of the pipelines: by replica,
  // null at the own place; empty where there is one replica, and votes at every other stage.
  std::vector<std::unique_ptr<net::Link>> replicas;
  std::vector<std::unique_ptr<net::Link>> votes;
  // Says which replicas begin, leave and come, outlives the stage; null: all begin and none may
  // leave. Then links to other
  // replicas stay where they are, whoever is behind them (net::ReplaceableLink).
  sync::MembershipTracker* tracker = nullptr;
  std::optional<Entry> entry = {};  // absent: all began together
};

// What is asked of a run from outside, as the head of a pipeline knows it.
struct Wishes {
  bool stop = false;       // finish the step, make a checkpoint and leave
  std::uint32_t save = 0;  // make a checkpoint soon; every wish has a higher number
};

// Null where this stage needs no tokens.
struct StageData {
  std::shared_ptr<const tensors::TokenFile> training;
  std::shared_ptr<const tensors::TokenFile> evaluation;
};

}  // namespace strait::stages
