#pragma once

#include "framework/codec/settings.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/speeds.h"
#include "models/model_description.h"
#include "schedules/simulate.h"

namespace strait::planner {

// Cost of a micro-batch of this number of tokens in a chunk of these layers.
schedules::ChunkCost chunk_cost(const models::ModelDescription& model,
                                const models::LayerRange& layers, std::int64_t tokens,
                                const plan::ComputeSpeed& speed);

// The processes of a host, which make their updates at the same time.
struct UpdatePeers {
  std::int64_t all = 1;       // they share the disk
  std::int64_t of_stage = 1;  // with sync.share_state each updates its part
};
// `hosts`: of all processes, by replica and then by stage. `process` is one of them.
UpdatePeers update_peers(std::span<const std::size_t> hosts, std::int64_t stages,
                         std::size_t process);
UpdatePeers update_peers(const plan::Plan& plan, net::ProcessName process);

// Seconds of an optimizer's update of what these layers train, on a host.
double update_seconds(const plan::Plan& plan, std::size_t host,
                      const models::ModelDescription& model, const models::LayerRange& layers,
                      const UpdatePeers& peers = {});

// Parameters of a stage that Muon updates.
std::int64_t muon_parameters(const plan::Plan& plan, const models::ModelDescription& model,
                             const std::vector<models::LayerRange>& chunks);

// Off-loaded, both at the same time: the CPU's update of `trained` parameters, and copies of
// gradients to the host and of values to the GPU.
struct OffloadSeconds {
  double update = 0;
  double transfer = 0;
};
OffloadSeconds offload_seconds(const recipe::Recipe& recipe, std::int64_t trained);
// Of an update whose state is on the disk: to read and to write it.
double disk_seconds(std::int64_t disk_bytes);

// Cost of a boundary that carries these bytes per micro-batch.
schedules::LinkCost link_cost(double forward_bytes, double backward_bytes,
                              const plan::PathSpeed& forward, const plan::PathSpeed& backward);

// To encode, or to decode, this number of values that cross a boundary.
double coding_seconds(const codec::CodecSettings& settings, codec::Direction direction,
                      double values);
// Adds what both ends take for messages of this number of values.
void add_coding(const codec::CodecSettings& settings, double values, schedules::LinkCost& link);

// The pipeline of a replica, for the simulator. Costs are those of whole micro-batches.
struct StepCosts {
  std::string schedule = "1f1b";
  std::int64_t micro_batches = 1;
  std::int64_t stages = 1;
  std::vector<schedules::ChunkCost> chunks;  // by position
  std::vector<schedules::LinkCost> links;    // between adjacent chunks
  double tie_seconds = 0;                    // see below
  schedules::Machines machines = {};         // see machines_of()
  std::int64_t slices = 1;                   // of a micro-batch, each a pass of its own

  std::int64_t passes() const { return micro_batches * slices; }
};

// The cores of a replica's stages, and their GPUs: those that several processes share, as far as
// hosts have reported them. `hosts` and `threads` of all processes. Replicas are busy at the same
// time, so each has a part of what they share.
schedules::Machines machines_of(const plan::Plan& plan, std::span<const std::size_t> hosts,
                                std::span<const std::int64_t> threads, std::uint32_t replica);

// Seconds that a tied table on two stages adds to a step, if it carries these bytes: the gradient
// rows of the last micro-batch, then the values for the first micro-batch of the next step. All
// other rows are sent during compute.
double tie_seconds(double gradients, double values, std::int64_t micro_batches,
                   const plan::PathSpeed& down, const plan::PathSpeed& up);

// `depth = "auto"`: the best one up to `deepest`.
std::int64_t best_depth(const StepCosts& costs, std::int64_t deepest);

// Micro-batches of a step of all replicas.
std::int64_t all_micro_batches(const plan::Plan& plan);

// `pipeline.rows = "auto"`: how many micro-batches of a step each of these replicas gets. Each has
// as many as the others in `equal`, and keeps them unless the slowest one is clearly faster.
std::vector<std::int64_t> best_micro_batches(std::vector<StepCosts> equal, std::int64_t depth);

// `micro_batch = "auto"`: of the divisors of a replica's rows, the smallest whose forecast step
// takes at most 5 % longer than the shortest one; small micro-batches need less memory. `forecast`:
// seconds of a step with micro-batches of this number of rows; nullopt: that does not fit into
// memory. Returns 1 if nothing fits.
std::int64_t best_micro_batch(std::int64_t rows,
                              const std::function<std::optional<double>(std::int64_t)>& forecast);

schedules::Forecast simulated_step(const StepCosts& costs, std::int64_t depth);
double step_seconds(const StepCosts& costs, std::int64_t depth);

// Seconds of the forwards of a step alone, whose activations take these bytes per micro-batch.
double forward_seconds(StepCosts costs, double bytes, std::int64_t depth);

// The pipelines of all replicas of a plan, after the first epoch unless it is asked for. `speed`
// returns the speed of a path.
std::vector<StepCosts> costs_of_replicas(const plan::Plan& plan, const plan::PathSpeeds& speed,
                                         bool first_epoch = false);

// Seconds of a step of the slowest replica, at least those of the busiest line.
double forecast_step(const plan::Plan& plan, const plan::PathSpeeds& speed);

// The model as the plan's stages train it: with adapters, and recomputed layers.
models::ModelDescription trained_model(const plan::Plan& plan);

// Seconds that each process computes in a step, without its update, and with what it waits for
// cores that others have; after the first epoch, unless it is asked for.
std::map<net::ProcessName, double> compute_seconds(const plan::Plan& plan,
                                                   bool first_epoch = false);
// The same; 0 for a process that computes less after the first epoch, which a measurement would
// have to tell from a faster host.
std::map<net::ProcessName, double> steady_compute_seconds(const plan::Plan& plan);

// The useful work of a process in a step, for its model FLOPs utilization: the forwards and
// backwards of its layers, by the model's formulas, with attention over whole rows. Recompute, the
// forwards of a preference's reference, and evaluations do not count, and of a layer that only the
// first epoch computes nothing.
struct StepWork {
  double flops = 0;
  double devices = 0;  // the part of a GPU, or of the CPUs of a host, that the process has
  std::string device;  // name of the GPU by the plan; empty: unknown
  recipe::Dtype dtype = recipe::Dtype::float32;
};
// `accelerators` of its host, which processes take in turn, where the plan does not know them.
StepWork step_work(const plan::Plan& plan, net::ProcessName name, std::int64_t accelerators = 0);

}  // namespace strait::planner
