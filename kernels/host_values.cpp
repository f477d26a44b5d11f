#include "kernels/host_values.h"

#include <ATen/ATen.h>

namespace strait::kernels {

at::Tensor on_device(const at::Tensor& host, at::Device device) {
  if (host.device() == device) return host;
  TORCH_INTERNAL_ASSERT(host.is_cpu(), "values of ", host.device(), " where the host's are copied");
  // A copy from pageable memory would wait for the stream. The allocator of pinned memory keeps the
  // block until the copy is done.
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace strait::kernels
