#include "kernels/kernel_tensors.h"

#include <ATen/ATen.h>

#include "kernels/current_stream.h"
#include "kernels/gpu_rows.h"

namespace strait::kernels {

Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Element::float32;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kHalf:
      return Element::float16;
    default:
      TORCH_INTERNAL_ASSERT(false, "rows of elements of type ", type);
  }
}

bool layer_kernels_take(const at::Tensor& values) {
  const at::ScalarType type = values.scalar_type();
  return !values.is_cpu() && (type == at::kFloat || type == at::kBFloat16) &&
         gpu_kernels_run_on(values.device());
}

void* stream_of(const at::Tensor& values) {
  return current_stream(values.device()).native_handle();
}

at::Tensor on_device(const at::Tensor& host, at::Device device) {
  if (host.device() == device) return host;
  TORCH_INTERNAL_ASSERT(host.is_cpu(), "values of ", host.device(), " where the host's are copied");
  // A copy from pageable memory would wait for the stream. The allocator of pinned memory keeps the
  // block until the copy is done.
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace strait::kernels
