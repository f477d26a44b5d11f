#include "models/initialize.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/random_key.h"
#include "models/families.h"

namespace strait::models {

void initialize(Model& model, const ModelConfig& config, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  const Family& family = family_of(config);
  for (const Parameter& parameter : model.parameters()) {
    const Initialization how = family.initialization(config, parameter.name);
    at::Tensor target = parameter.value;
    if (target.numel() == 0) continue;  // rows of a tied table that another stage owns
    if (how.deviation == 0) {
      target.fill_(how.mean);
      continue;
    }
    // Drawn in float32 on the CPU, so that type and device of the model do not change the draw.
    at::Generator generator = kernels::keyed_generator(
        kernels::mix_key({seed, kernels::hash_name(parameter.name)}), at::kCPU);
    const bool in_place = target.is_cpu() && target.scalar_type() == at::kFloat;
    at::Tensor drawn = in_place ? target : at::empty(target.sizes(), at::TensorOptions(at::kFloat));
    drawn.normal_(how.mean, how.deviation, generator);
    if (how.zero_row >= 0) drawn.select(0, how.zero_row).zero_();
    if (!in_place) target.copy_(drawn);
  }
}

}  // namespace strait::models
