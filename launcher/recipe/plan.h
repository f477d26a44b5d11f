#pragma once

#include <iterator>

#include "framework/codec/settings.h"
#include "framework/net/identity.h"
#include "framework/store/sample.h"
#include "framework/sync/membership.h"
#include "framework/sync/sync_settings.h"
#include "launcher/recipe/links.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"
#include "schedules/action.h"

namespace strait::plan {

// A part of a training step, with its forecast.
struct StepPart {
  // compute: forwards and backwards of a process. update: what follows them in it: norm, clipping,
  // optimizer. encode, decode: of what it sends and receives over boundaries, during its compute.
  // link: the bytes that it sends over a link. sync: waiting for rounds of replicas. wait: of the
  // process that works longest, for others. step: the whole step.
  enum class Kind : std::uint8_t { step, compute, update, encode, decode, link, sync, wait };

  Kind kind = Kind::step;
  net::ProcessName process;        // of compute, update, encode, decode and link
  std::string name;                // "compute of stage 1.0 (host a)"
  std::string link = {};           // of a link, its name
  double seconds = 0;              // after the first epoch
  double first_epoch_seconds = 0;  // in the first epoch, whose samples miss activation caches
  bool assumed = false;            // by a speed that was neither measured nor stated
};

// A resolved recipe: which process holds which layers, on which host, over which links. A value
// without side effects. Bytes and times are forecasts; everything else is exact.
struct Plan {
  // Cores and memory are 0, and the others absent, until the host has reported them.
  struct Host {
    std::string name;  // as in the recipe
    std::int64_t cores = 0;
    std::int64_t memory = 0;  // bytes
    // Bytes of each GPU that the host's stages use in turn. Empty: they compute on its CPU.
    std::optional<std::vector<std::int64_t>> gpus = std::nullopt;
    std::string device = {};  // their name, by the recipe or the driver; empty: unknown
    std::optional<std::string> processor = std::nullopt;  // equal on hosts that compute equal bits
  };
  struct Process {
    net::ProcessName name;
    std::string host;                        // name of the host
    std::size_t host_index = 0;              // its index in `hosts`
    std::vector<models::LayerRange> chunks;  // usually one; see schedules/pipeline_shape.h
    std::int64_t threads = 1;
    std::int64_t parameters = 0;
    std::int64_t state_bytes = 0;       // weights, gradients, optimizer and sync state
    std::int64_t offloaded_bytes = 0;   // the optimizer's state in host memory, if not with it
    std::int64_t disk_bytes = 0;        // the same in files on the disk
    std::int64_t saved_bytes = 0;       // the part of all three that a checkpoint holds
    std::int64_t activation_bytes = 0;  // peak, kept for backwards and weight gradients
    std::int64_t waiting_bytes = 0;     // off-loaded activations of waiting micro-batches
    std::int64_t cache_bytes = 0;       // limit of all activation caches in memory
    std::int64_t sync_bytes = 0;        // frames and copies of a sync round, in host memory
    std::int64_t in_flight = 0;         // peak number of micro-batches held, by chunk
    // The first replica of the group in which this stage sums its gradients; see groups_of().
    std::optional<std::uint32_t> group = std::nullopt;
  };
  // replica: of two replicas of a stage. consensus: of their first stages, which decide each step.
  enum class Use { boundary, tie, replica, consensus };
  struct Link {
    std::string name;  // "boundary 0.0>1.0", of chunks "boundary 1.0/0>0.0/1", "replica 1.0~1.1"
    Use use = Use::boundary;
    net::ProcessName connects;        // the upstream process, or the lower replica
    net::ProcessName listens;         // the downstream process, or the other replica
    std::int64_t position = 0;        // boundary: position of the upstream chunk in the pipeline
    std::int64_t forward_bytes = 0;   // per step, downstream, or from `connects`
    std::int64_t backward_bytes = 0;  // per step, upstream, or from `listens`
    // Per step of the first epoch, in which every sample misses the activation cache. Equal to
    // forward_bytes if there is no cache.
    std::int64_t first_forward_bytes = 0;
    codec::CacheLimits cache;  // of boundaries

    bool has_cache() const { return cache.entry_bytes > 0; }
  };
  // Forecast of a training step with one sync method.
  struct SyncOffer {
    std::string method;
    std::int64_t step_bytes = 0;   // that the busiest process sends, mean of all steps
    std::int64_t round_bytes = 0;  // the same, in one round
    std::int64_t slot_bytes = 0;   // state of the largest stage
    double staleness = 0;          // mean number of steps by which weights lag the agreed ones
    double step_seconds = 0;
    double slowdown = 1;  // step_seconds relative to a step without replicas
    std::optional<sync::Strength> strength = std::nullopt;  // of cocktail
    std::string name() const;                               // "cocktail 0.1/0.2/4"
  };
  struct Data {
    std::string file;  // token file that stages read; empty until the data is prepared
    std::string hash;
    std::int64_t rows = 0;
  };

  recipe::Recipe recipe;
  std::string model_config;  // content of config.json
  std::string model_hash;
  Data train;
  std::optional<Data> eval;
  std::int64_t steps = 0;
  std::int64_t micro_batches = 0;          // per training step, of the replica that has most
  std::vector<std::int64_t> replica_rows;  // of a step, by replica; empty: all have the same
  std::int64_t eval_micro_batches = 0;     // per evaluation, of all replicas together
  std::int64_t depth = 0;
  std::int64_t slices = 1;              // of a micro-batch's rows, in training
  std::int64_t epoch_steps = 0;         // length of the first epoch, in which every sample is new
  double step_seconds = 0;              // forecast, after the first epoch
  double first_epoch_step_seconds = 0;  // forecast, in the first epoch
  // Forecast, of a step's forwards of a reference; with adapters part of first_epoch_step_seconds.
  double reference_seconds = 0;
  std::string sync_method;  // between replicas, "auto" resolved; empty with one replica
  std::optional<sync::Strength> sync_strength = std::nullopt;  // of cocktail, also if chosen
  std::vector<SyncOffer> sync_offers;                          // of all methods
  std::vector<StepPart> parts;     // of the forecast step; the first one is the whole step
  std::vector<Layout> layouts;     // this one, then the next best; none: nothing was compared
  std::vector<Host> hosts;         // in the order of the recipe
  recipe::LinkTable speeds;        // measured speeds that forecasts use; see speeds.h
  std::vector<Process> processes;  // by replica, then by stage
  std::vector<Link> links;

  const Process& process(net::ProcessName name) const;
  // Upper limit of the copies of a checkpoint that is written during training.
  std::int64_t snapshot_bytes(const Process& process) const;
  std::int64_t memory_bytes(const Process& process) const;  // of all kinds
  // Memory is split in two: what a process needs where it computes, and what it always needs in
  // host memory: caches, sync rounds and copies of checkpoints.
  static std::int64_t compute_bytes(const Process& process) {
    return process.state_bytes + process.activation_bytes;
  }
  std::int64_t host_bytes(const Process& process) const;
  // Number of the process among those on its host. GPUs are assigned round robin by it.
  std::int64_t index_on_host(const Process& process) const;
  // Number of its GPU. Nullopt: it computes on the CPU, or its GPU is not known yet.
  std::optional<std::size_t> gpu_of(const Process& process) const;
  std::int64_t micro_batch_rows() const;  // as the recipe states or "auto" chose
  std::int64_t micro_batches_of(std::uint32_t replica) const;                 // of a training step
  std::int64_t chunks() const { return std::ssize(processes.at(0).chunks); }  // of each stage
  // Actions of a stage in a training step, and in an evaluation, which all replicas share.
  schedules::ActionList training_actions(net::ProcessName name) const;
  schedules::ActionList evaluation_actions(net::ProcessName name) const;
  // The same if only `replicas` replicas take part, and this one has number `index` among them.
  schedules::ActionList evaluation_actions(net::ProcessName name, std::size_t replicas,
                                           std::size_t index) const;
  // Hash over everything above except paths and secrets. All processes of a run have the same hash.
  std::string hash() const;
};

nlohmann::json to_json(const Plan& plan);
// UserError (mismatch): the JSON is not a plan of this build.
Plan plan_from_json(const nlohmann::json& json);

// The groups of a stage's replicas. Without groups each replica is a group of one.
sync::ReplicaGroups groups_of(const Plan& plan, std::uint32_t stage);

// The plan's recipe with "auto" in [sync] replaced by what was chosen. Stages use it, and a resumed
// run is compared with it.
recipe::Recipe resolved_recipe(const Plan& plan);

// Whether checkpoints are written during training. It pauses instead if the membership may change:
// an eviction repeats a checkpoint, and a replica rejoins at one.
bool saves_during_training(const recipe::Recipe& recipe);

}  // namespace strait::plan
