#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// What `host`, a small tensor of the CPU, holds, on `device`: copied through pinned memory behind
// whatever the current stream does, without a wait for it. On the CPU the same tensor.
at::Tensor on_device(const at::Tensor& host, at::Device device);

}  // namespace strait::kernels
