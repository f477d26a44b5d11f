#pragma once

#include "launcher/recipe/plan.h"

namespace strait::planner {

// What a whole run takes. Checkpoints are written during training, and take no time of it.
struct RunForecast {
  // Of all steps, with what replicas add to each, and of a preference's reference.
  double steps_seconds = 0;
  double evaluation_seconds = 0;
  std::int64_t evaluations = 0;
  std::int64_t checkpoints = 0;
  std::int64_t checkpoint_bytes = 0;  // of each, on all hosts
  // By host: bytes that its processes send to other hosts in all steps.
  std::vector<std::int64_t> sent_bytes;
  double gpu_seconds = 0;  // GPUs in use, times the seconds of the run
  // Of the hosts that state their price; absent: none does.
  std::optional<double> cost = std::nullopt;
  std::vector<std::string> without_price = {};  // hosts in use that `cost` leaves out
  // Weights that hosts get from the launcher at most, each matrix once: hosts pass on what several
  // of them need. 0: they begin with random ones, or the hosts are this machine.
  std::int64_t shipped_bytes = 0;
  double shipping_seconds =
      0;  // at hosts.ship_megabits, else at the line that is stated or assumed
};

RunForecast forecast_run(const plan::Plan& plan);

nlohmann::json to_json(const RunForecast& run, const plan::Plan& plan);

}  // namespace strait::planner
