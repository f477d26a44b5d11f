#include "kernels/kernel_tensors.h"

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

}  // namespace strait::kernels
