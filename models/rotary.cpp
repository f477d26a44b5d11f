#include "models/rotary.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/kernel_tensors.h"

namespace strait::models {

const RotaryTables::Table& RotaryTables::of(const Rotary& rotary, const at::Tensor& positions,
                                            const at::TensorOptions& layers) {
  for (const auto& [known, table] : tables_) {
    if (known == &rotary) return table;
  }
  const at::NoGradGuard no_grad;
  const at::Device device = layers.device();
  const at::Tensor frequencies =
      kernels::on_device(at::tensor(at::ArrayRef<float>(rotary.frequencies)), device);
  const at::Tensor angles =
      kernels::on_device(positions, device).to(at::kFloat).unsqueeze(-1).mul(frequencies);
  return tables_
      .emplace_back(&rotary, Table{angles.cos().mul_(rotary.scale).to(layers.dtype()),
                                   angles.sin().mul_(rotary.scale).to(layers.dtype())})
      .second;
}

}  // namespace strait::models
