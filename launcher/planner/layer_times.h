#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::planner {

// Seconds of a micro-batch in a layer.
struct LayerTime {
  double forward = 0;
  double backward = 0;
};

// Seconds of a call, and of what it queues on an accelerator.
double timed(at::Device device, const std::function<void()>& call);

// The median of several rounds, after one to warm up. `input` as it comes from the layer before; a
// backward is run where something needs one.
LayerTime time_layer(models::Layer& layer, const at::Tensor& input, const models::Pass& pass);

struct ProfileQuestion {
  std::int64_t rows = 1;  // of a micro-batch
  std::int64_t row = 1024;
  std::int64_t threads = 1;
  at::ScalarType dtype = at::kFloat;
  bool recompute = false;  // blocks run their forward once more
};

// Of each layer of `description`, which is that of `config`; measured on the CPU of this machine
// with random weights, layers that are alike once, and with no more rows than keep it busy. Takes a
// second for each kind, or two rounds where these take longer, and the memory of the largest layer.
std::vector<LayerTime> profile_layers(const models::ModelConfig& config,
                                      const models::ModelDescription& description,
                                      const ProfileQuestion& question);

}  // namespace strait::planner
