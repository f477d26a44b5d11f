#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// The values of `host`, a small CPU tensor, on `device`: copied through pinned memory after the
// queued work of the current stream, without waiting for it. On the CPU the same tensor.
at::Tensor on_device(const at::Tensor& host, at::Device device);

}  // namespace strait::kernels
