#include "models/initialize.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "kernels/random.h"
#include "models/families.h"

namespace strait::models {
namespace {

// Bound for the lower matrix of an adapter, [rank, in]. The upper matrix is zero.
double uniform_bound(const Parameter& parameter) {
  return 1 / std::sqrt(static_cast<double>(parameter.value.size(1)));
}

}  // namespace

void initialize(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Tensor target = parameter.value;
  if (target.numel() == 0) return;  // another stage owns the rows of this tied table
  if (parameter.norms_of) {
    const auto& [matrix, input_first] = *parameter.norms_of;
    return assign(parameter, kernels::output_norms(matrix, input_first, nullptr));
  }
  Initialization how;
  if (!parameter.adapter) how = family_of(config).initialization(config, parameter.name);
  const bool uniform = parameter.adapter && parameter.name.ends_with(kAdapterDown);
  const bool logarithms = how.log_highest > 0;
  if (!uniform && !logarithms && how.deviation == 0 && !parameter.quantized) {
    target.fill_(how.mean);
    return;
  }
  // Drawn in float32 on the CPU, so that the values do not depend on the model's type and device.
  at::Generator generator = kernels::keyed_generator(
      kernels::mix_key({seed, kernels::hash_name(parameter.name)}), at::kCPU);
  const bool in_place = target.is_cpu() && target.scalar_type() == at::kFloat;
  at::Tensor drawn = in_place ? target : at::empty(target.sizes(), at::TensorOptions(at::kFloat));
  if (uniform) {
    drawn.uniform_(-uniform_bound(parameter), uniform_bound(parameter), generator);
  } else if (logarithms) {
    drawn.uniform_(how.log_lowest, how.log_highest, generator).log_();
  } else {
    drawn.normal_(how.mean, how.deviation, generator);
  }
  if (how.zero_row >= 0) drawn.select(0, how.zero_row).zero_();
  if (!in_place) assign(parameter, drawn);
}

void initialize(Model& model, const ModelConfig& config, std::uint64_t seed) {
  for (const Parameter& parameter : model.parameters()) initialize(parameter, config, seed);
}

}  // namespace strait::models
