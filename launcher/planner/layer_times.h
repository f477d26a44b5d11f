#pragma once

#include <functional>

#include "models/model.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::planner {

// Seconds that a micro-batch takes in one layer.
struct LayerTime {
  double forward = 0;
  double backward = 0;
};

// Seconds of a call, including the work that it queues on an accelerator.
double timed(at::Device device, const std::function<void()>& call);

// The mean of several rounds after a warm-up round. `input` has the form that the layer before
// produces. Runs a backward if anything needs a gradient.
LayerTime time_layer(models::Layer& layer, const at::Tensor& input, const models::Pass& pass);

struct ProfileQuestion {
  std::int64_t rows = 1;  // of a micro-batch
  std::int64_t row = 1024;
  std::int64_t threads = 1;
  at::ScalarType dtype = at::kFloat;
  bool recompute = false;  // blocks run their forward a second time
};

// Times of each layer of `description`, which describes `config`. Measured on the CPU of this
// machine with random weights, once per kind of layer, and with no more rows than keep the CPU
// busy. Takes one second per kind, or two rounds if these take longer, and the memory of the
// largest layer.
std::vector<LayerTime> profile_layers(const models::ModelConfig& config,
                                      const models::ModelDescription& description,
                                      const ProfileQuestion& question);

}  // namespace strait::planner
