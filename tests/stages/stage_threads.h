#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stages/stage.h"

namespace strait::stages {

// A whole run in one process for tests: every stage of every replica on a thread of its own, over
// memory links. Processes are counted by replica, then by stage.
struct RunSettings {
  // Of each chunk on the data's way, first and last: the first ones of all stages, then the second.
  std::vector<std::pair<int, int>> blocks = {{0, 3}};
  int chunks = 1;  // of each stage
  std::string schedule = "1f1b";
  int depth = 0;
  int micro_batches = 4;  // of each replica
  int replicas = 1;
  sync::SyncSettings sync;
  bool exact = true;  // resumed with `from`: by the same replicas and method
  int rows = 2;       // of a micro-batch
  int steps = 20;
  bool tied = true;
  bool recompute = false;
  bool bfloat16 = false;
  double learning_rate = 1e-2;
  double clip = 0.7;
  double dropout = 0.1;
  bool shuffle = true;
  at::ScalarType wire = at::kFloat;
  int stop_at = 0;  // ask to stop when this many steps are done; 0: never
  bool evaluate = false;
  int threads = 1;           // of each stage's arithmetic
  BoundaryOptions boundary;  // of every boundary; name and place are filled in
  int checkpoint_every = 0;
  std::function<bool(std::size_t stage)> finds_caches;  // when resumed with some; empty: all do
  // What goes around every end of a link; empty: nothing. A process whose thread ends by an
  // exception is lost, and its replica with it: with `replicas_leave` the others go on.
  std::function<std::unique_ptr<net::Link>(std::size_t process, std::unique_ptr<net::Link>)> wrap;
  bool replicas_leave = false;
  // With that: these replicas do not begin; they come as if they had been lost.
  std::set<std::uint32_t> absent;
  // With that: how often a replica that is lost comes back, at the next checkpoint, which is made
  // for it. `returns` is called before it gets its new links.
  int comebacks = 0;
  std::function<void(std::uint32_t replica)> returns;
  // On a stage's thread, when no stage has begun what comes behind this checkpoint.
  std::function<void(Stage&, std::size_t stage, store::Step)> at_checkpoint;
  // Likewise, around every action.
  std::function<void(Stage&, std::size_t stage, const Phase&, const schedules::Action&)> before;
  std::function<void(Stage&, std::size_t stage, const Phase&, const schedules::Action&)> after;

  std::size_t stages() const { return blocks.size() / static_cast<std::size_t>(chunks); }
};

using Tensors = std::map<std::string, at::Tensor>;

struct RunResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> evaluations;
  Tensors saved;                                  // what a checkpoint holds, of all stages
  std::vector<std::vector<double>> curves;        // losses by replica, as its head was told
  std::vector<std::vector<std::int64_t>> tokens;  // likewise
  std::vector<Tensors> models;                    // by replica, as masters: what they agree on
  std::vector<Tensors> masters;  // by replica; names with their stage, "wte.weight of stage 0"
  Tensors caches;                // and of what their boundaries remember
  std::int64_t steps = 0;
  std::vector<bool> skips;                            // of each step
  std::vector<std::vector<BoundaryTraffic>> sent;     // by step, of all stages
  std::vector<std::vector<BoundaryTraffic>> traffic;  // by stage, in all
  std::vector<std::string> errors;                    // of stages that ended by an exception
  // Replicas that came, each with the steps that were made by then.
  std::vector<std::pair<std::int64_t, std::uint32_t>> arrivals;
};

// `from`: what an earlier run saved, and after how many steps; empty: from random weights.
// `caches`: likewise, all or none.
RunResult run_stages(const RunSettings& settings, const Tensors& from = {}, std::int64_t first = 0,
                     const Tensors& caches = {});

// What a run with such a boundary must say as a whole.
codec::Traffic sum_of(const RunResult& result, BoundaryTraffic::Direction direction, bool sent);

}  // namespace strait::stages
