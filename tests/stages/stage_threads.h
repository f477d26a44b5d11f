#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/identity.h"
#include "framework/net/link.h"
#include "stages/stage.h"
#include "tests/campaigns.h"

namespace strait::stages {

// A whole run in one process: every stage of every replica on its own thread, with memory links. A
// stage's process number is replica * stages + stage.
struct RunSettings {
  // First and last block of each chunk, by position: first chunks of all stages, then the second.
  std::vector<std::pair<int, int>> blocks = {{0, 3}};
  int chunks = 1;  // of each stage
  std::string schedule = "1f1b";
  int depth = 0;
  int slices = 1;                     // of each micro-batch
  int micro_batches = 4;              // of each replica
  std::vector<std::int64_t> unequal;  // micro-batches by replica, if they differ
  int replicas = 1;
  sync::SyncSettings sync;
  bool exact = true;  // resumed with `from`: by the same replicas and method
  int rows = 2;       // of a micro-batch
  int steps = 10;
  bool tied = true;
  bool llama = false;  // instead of a GPT-2
  bool recompute = false;
  bool bfloat16 = false;
  bool offload = false;              // the optimizer's state
  bool on_disk = false;              // the same, in files
  bool offload_activations = false;  // all of at least a byte
  bool muon = false;
  MomentType moments = MomentType::float32;
  std::shared_ptr<const models::Lora> lora;  // null: all weights are trained
  std::vector<at::Device> devices;           // of the processes, in turn; empty: the CPU
  GroupOptions group;                        // its place is filled in
  double learning_rate = 1e-2;
  double clip = 0.7;
  double dropout = 0.1;
  PreferenceOptions preference;  // with a loss, rows hold pairs of documents
  bool shuffle = true;
  int stop_at = 0;  // ask to stop when this many steps are done; 0: never
  bool evaluate = false;
  int threads = 1;                 // of each stage's arithmetic
  BoundaryOptions boundary;        // of every boundary; name and position are filled in
  codec::CacheLimits frozen_rows;  // no entry_bytes: every row is computed anew
  int checkpoint_every = 0;
  std::function<bool(std::size_t stage)> finds_caches;  // when resumed with some; empty: all do
  // Wraps every end of a link; may be empty. A process whose thread ends by an exception is lost,
  // and its replica with it: with `replicas_leave` the others continue.
  std::function<std::unique_ptr<net::Link>(std::size_t process, std::unique_ptr<net::Link>)> wrap;
  bool replicas_leave = false;
  // With `replicas_leave`: these are not members at the start; they rejoin as if they had been
  // lost.
  std::set<std::uint32_t> absent;
  // With `replicas_leave`: how often a lost replica rejoins, at the next checkpoint, which is
  // requested for it. `returns` is called before it gets its new links.
  int rejoin_count = 0;
  std::function<void(std::uint32_t replica)> returns;
  // Called on a stage's thread, before any stage begins the step after this checkpoint.
  std::function<void(Stage&, std::size_t stage, store::Step)> at_checkpoint;
  // With it, stages take snapshots instead of waiting for each other at a checkpoint.
  std::optional<SnapshotOptions> snapshots;
  std::function<CheckpointResult(Stage&, std::size_t stage, store::Step)> take_snapshot;
  // Called on a stage's thread, around every action.
  std::function<void(Stage&, std::size_t stage, const Phase&, const schedules::Action&)> before;
  std::function<void(Stage&, std::size_t stage, const Phase&, const schedules::Action&)> after;

  std::size_t stages() const { return blocks.size() / static_cast<std::size_t>(chunks); }
};

using Tensors = std::map<std::string, at::Tensor>;

struct RunResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> evaluations;
  Tensors saved;                                  // tensors of a checkpoint, of all stages
  std::vector<std::vector<double>> curves;        // losses by replica, at its first stage
  std::vector<std::vector<std::int64_t>> tokens;  // by replica, at its first stage
  std::vector<Tensors> models;                    // agreed model by replica, names as in masters
  std::vector<Tensors> masters;  // by replica; names with their stage, "wte.weight of stage 0"
  Tensors caches;                // of all boundaries
  std::int64_t steps = 0;
  std::vector<bool> skips;                            // of each step
  std::vector<std::vector<BoundaryTraffic>> sent;     // by step, of all stages
  std::vector<std::vector<BoundaryTraffic>> traffic;  // by stage, in all
  std::vector<std::string> errors;                    // of stages that ended by an exception
  // Finished steps and replica of every rejoin.
  std::vector<std::pair<std::int64_t, std::uint32_t>> rejoins;
};

// `from`: checkpoint of an earlier run, after `first` steps; empty: random weights. `caches`: saved
// caches of that run, or none.
RunResult run_stages(const RunSettings& settings, const Tensors& from = {}, std::int64_t first = 0,
                     const Tensors& caches = {});

// Traffic of all boundaries in one direction.
codec::Traffic sum_of(const RunResult& result, BoundaryTraffic::Direction direction, bool sent);

// Two ends of a link in memory between these processes.
using LinkPair = std::pair<std::unique_ptr<net::Link>, std::unique_ptr<net::Link>>;

}  // namespace strait::stages
