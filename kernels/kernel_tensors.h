#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "kernels/group_format.h"

namespace strait::kernels {

// float32, bfloat16 or float16: rows have no other types.
Element element_of(at::ScalarType type);

// Whether the kernels of gpu_layers.h support the tensor: float32 or bfloat16, on a GPU that they
// run on.
bool layer_kernels_take(const at::Tensor& values);

// The current stream of a tensor's device, a cudaStream_t.
void* stream_of(const at::Tensor& values);

// The values of `host`, a small CPU tensor, on `device`: copied through pinned memory after the
// queued work of the current stream, without waiting for it. On the CPU the same tensor.
at::Tensor on_device(const at::Tensor& host, at::Device device);

}  // namespace strait::kernels
