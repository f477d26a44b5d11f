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
  std::int64_t updates = 0;  // made by now, this one included
  std::int64_t copies = 1;   // of the model, whose weights are averaged
};

// AdamW for one of several copies of a model, each of which sees a gradient over rows of its own,
// and whose weights are averaged. A copy's second moment holds the noise of its few rows; in that
// of the mean gradient there would be `copies` times less. So where noise is most of a gradient,
// plain AdamW steps too short: by half among four. The first moment shows how much is noise: it
// has averaged out there but for a share k. With v and m the moments, corrected for their start,
//     noise = (v - m²) / (1 - k)      v of the mean gradient = v - noise (1 - 1 / copies)
// and with that it steps; the moments that it keeps are those of AdamW. float32, one behind the
// other in memory. Same bits at any number of threads on a CPU; on another device libtorch's
// operators do it.
void averaged_adamw(const at::Tensor& weights, const at::Tensor& gradient,
                    const at::Tensor& first_moment, const at::Tensor& second_moment,
                    const AveragedAdamW& how);

}  // namespace strait::kernels
