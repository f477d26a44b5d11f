#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/net/process_name.h"
#include "framework/store/sample.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"
#include "schedules/action.h"

namespace strait::launcher {

// A recipe resolved: who runs what, where, over which link. A value: made, printed, compared and
// sent without side effects. Bytes and times in it are forecasts; everything else is exact.
struct Plan {
  struct Process {
    net::ProcessName name;
    std::string host;
    models::LayerRange layers{};
    std::int64_t threads = 1;
    std::int64_t parameters = 0;
    std::int64_t state_bytes = 0;       // weights, gradients and optimizer state
    std::int64_t activation_bytes = 0;  // kept between forwards and backwards, at the most
    std::int64_t cache_bytes = 0;       // what it remembers of samples in memory, at the most
    std::int64_t in_flight = 0;         // micro-batches held, at the most
  };
  enum class Use { boundary, tie };
  struct Link {
    std::string name;  // "boundary 0.0>1.0"
    Use use = Use::boundary;
    net::ProcessName connects;        // the upper end
    net::ProcessName listens;         // the lower end: it binds
    std::int64_t forward_bytes = 0;   // per step, towards the loss
    std::int64_t backward_bytes = 0;  // per step, the other way
    // Where activations are sent as changes (else as forward_bytes, and 0):
    std::int64_t first_forward_bytes = 0;  // per step of the first epoch
    std::int64_t entry_bytes = 0;          // what each end remembers of a row
    std::int64_t cache_bytes = 0;          // memory for that at each end, at the most, and
    std::int64_t cache_disk_bytes = 0;     // disk beyond it
    std::int64_t cached_rows = 0;          // that fit, of all there are

    bool remembers() const { return entry_bytes > 0; }
  };
  struct Data {
    std::string file;  // where stages read the rows; empty while nothing is prepared
    std::string hash;
    std::int64_t rows = 0;
  };

  Recipe recipe;
  std::string model_config;  // the text of config.json
  std::string model_hash;
  Data train;
  std::optional<Data> eval;
  std::int64_t steps = 0;
  std::int64_t micro_batches = 0;       // of a training step, each replica
  std::int64_t eval_micro_batches = 0;  // of an evaluation
  std::int64_t depth = 0;
  std::int64_t epoch_steps = 0;         // of the first epoch, where samples are new
  double step_seconds = 0;              // behind it, and
  double first_epoch_step_seconds = 0;  // in it, at the assumed speeds of step_forecast.h
  std::vector<Process> processes;       // by replica, then by stage
  std::vector<Link> links;

  const Process& process(net::ProcessName name) const;
  // What a stage does in a training step.
  schedules::ActionList training_actions(net::ProcessName name) const;
  schedules::ActionList evaluation_actions(net::ProcessName name) const;
  // What all processes of a run must agree on: a hash over everything above but where files are.
  std::string hash() const;
};

nlohmann::json to_json(const Plan& plan);
// UserError (mismatch) where the JSON is not a plan of this build.
Plan plan_from_json(const nlohmann::json& json);

// For people: a few lines and two small tables.
std::string describe(const Plan& plan);

}  // namespace strait::launcher
