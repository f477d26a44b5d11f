#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::kernels {

struct AveragedAdamW {
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  std::int64_t updates = 0;  // number of updates, including this one
  std::int64_t copies = 1;   // of the model, whose weights are averaged
};

// AdamW for one of several copies of a model, each of which has the gradient of its own rows, and
// whose weights are averaged. A copy's second moment contains the noise of its few rows; the mean
// gradient has `copies` times less. So if noise is most of a gradient, plain AdamW steps too short:
// by half with four copies. The first moment shows the noise, because in it all noise but a share k
// has averaged out. With v and m the moments, corrected for their start:
//
//   noise = (v - m²) / (1 - k)
//   v of the mean gradient = v - noise (1 - 1 / copies)
//
// The step uses that v; the stored moments are those of AdamW. float32, contiguous. The same bits
// for any number of threads on a CPU; other devices use libtorch's operators.
void averaged_adamw(const at::Tensor& weights, const at::Tensor& gradient,
                    const at::Tensor& first_moment, const at::Tensor& second_moment,
                    const AveragedAdamW& how);

}  // namespace strait::kernels
