#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/net/process_name.h"
#include "framework/store/sample.h"
#include "framework/sync/sync_settings.h"
#include "launcher/recipe/link_table.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"
#include "schedules/action.h"

namespace strait::plan {

// A recipe resolved: who runs what, where, over which link. A value: made, printed, compared and
// sent without side effects. Bytes and times in it are forecasts; everything else is exact.
struct Plan {
  // Where processes run. What is not known before a host has answered is 0.
  struct Host {
    std::string name;  // as the recipe calls it
    std::int64_t cores = 0;
    std::int64_t memory = 0;  // bytes
  };
  struct Process {
    net::ProcessName name;
    std::string host;                        // its name, and
    std::size_t host_index = 0;              // which of `hosts` it is
    std::vector<models::LayerRange> chunks;  // mostly one; see schedules/pipeline_shape.h
    std::int64_t threads = 1;
    std::int64_t parameters = 0;
    std::int64_t state_bytes = 0;       // weights, gradients, optimizer and sync state
    std::int64_t activation_bytes = 0;  // kept between forwards and backwards, at the most
    std::int64_t cache_bytes = 0;       // what it remembers of samples in memory, at the most
    std::int64_t in_flight = 0;         // micro-batches held, at the most; in each chunk by itself
  };
  // replica: between two replicas of a stage; vote: between the heads of two pipelines.
  enum class Use { boundary, tie, replica, vote };
  struct Link {
    std::string name;  // "boundary 0.0>1.0", of chunks "boundary 1.0/0>0.0/1", "replica 1.0~1.1"
    Use use = Use::boundary;
    net::ProcessName connects;        // the upper end, or the replica of the lower number
    net::ProcessName listens;         // the lower end, or the other replica: it binds
    std::int64_t place = 0;           // boundary: of the chunk above it, on the data's way
    std::int64_t forward_bytes = 0;   // per step, towards the loss, or from who connects
    std::int64_t backward_bytes = 0;  // per step, the other way
    // Where activations are sent as changes (else as forward_bytes, and 0):
    std::int64_t first_forward_bytes = 0;  // per step of the first epoch
    std::int64_t entry_bytes = 0;          // what each end remembers of a row
    std::int64_t cache_bytes = 0;          // memory for that at each end, at the most, and
    std::int64_t cache_disk_bytes = 0;     // disk beyond it
    std::int64_t cached_rows = 0;          // that fit, of all there are

    bool remembers() const { return entry_bytes > 0; }
  };
  // What a sync method would make of a step.
  struct SyncOffer {
    std::string method;
    std::int64_t step_bytes = 0;   // that the busiest process sends to other replicas, on average
    std::int64_t round_bytes = 0;  // likewise in one round
    std::int64_t slot_bytes = 0;   // that the largest stage keeps for it
    double age = 0;                // steps that weights lag behind what was agreed, on average
    double step_seconds = 0;       // with it,
    double slowdown = 1;           // so many times longer than without
    std::optional<sync::Strength> strength = std::nullopt;  // of cocktail
    std::string name() const;                               // "cocktail 0.1/0.2/4"
  };
  struct Data {
    std::string file;  // where stages read the rows; empty while nothing is prepared
    std::string hash;
    std::int64_t rows = 0;
  };

  recipe::Recipe recipe;
  std::string model_config;  // the text of config.json
  std::string model_hash;
  Data train;
  std::optional<Data> eval;
  std::int64_t steps = 0;
  std::int64_t micro_batches = 0;       // of a training step, each replica
  std::int64_t eval_micro_batches = 0;  // of an evaluation, all replicas together
  std::int64_t depth = 0;
  std::int64_t epoch_steps = 0;         // of the first epoch, where samples are new
  double step_seconds = 0;              // behind it, and
  double first_epoch_step_seconds = 0;  // in it, by forecast
  std::string sync_method;              // of the replicas: "auto" is resolved; empty: there is one
  // Of cocktail, as the recipe says or as "auto" chose.
  std::optional<sync::Strength> sync_strength = std::nullopt;
  std::vector<SyncOffer> sync_offers;  // all methods, with the recipe's settings where it has them
  std::vector<Host> hosts;             // in the order of the recipe
  recipe::LinkTable speeds;                    // measured ones that forecasts go by; see speeds.h
  std::vector<Process> processes;      // by replica, then by stage
  std::vector<Link> links;

  const Process& process(net::ProcessName name) const;
  // Of each stage.
  std::int64_t chunks() const { return std::ssize(processes.at(0).chunks); }
  // What a stage does in a training step.
  schedules::ActionList training_actions(net::ProcessName name) const;
  // And in an evaluation, of whose micro-batches each replica has every so many.
  schedules::ActionList evaluation_actions(net::ProcessName name) const;
  // The same where so many replicas are left, of which this is the one at that place.
  schedules::ActionList evaluation_actions(net::ProcessName name, std::size_t replicas,
                                           std::size_t place) const;
  // What all processes of a run must agree on: a hash over everything above but where files are.
  std::string hash() const;
};

nlohmann::json to_json(const Plan& plan);
// UserError (mismatch) where the JSON is not a plan of this build.
Plan plan_from_json(const nlohmann::json& json);

// The plan's recipe with what "auto" chose in its [sync]: what the stages of a run go by, and what
// a run that goes on is compared by.
recipe::Recipe settled_recipe(const Plan& plan);

}  // namespace strait::plan
