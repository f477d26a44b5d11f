#include "kernels/quantized_matrix.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/gpu_rows.h"
#include "kernels/kernel_tensors.h"
#include "tests/device/waits.h"

namespace strait::kernels {
namespace {

using test_device::CountWaits;

const at::Device kDevice(at::kPrivateUse1, 0);

QuantizedMatrix some_matrix(MatrixFormat format, const std::vector<std::int64_t>& sizes) {
  at::manual_seed(7);
  const at::Tensor values = at::randn(sizes);
  values.select(0, 0).zero_();
  values.select(1, sizes[1] / 2).mul_(50);  // outliers: some groups are rotated
  const QuantizedMatrix matrix = make_quantized_matrix({format, sizes[0], sizes[1]}, at::kCPU);
  EXPECT_TRUE(quantize_matrix(values, matrix));
  return matrix;
}

// By the kernels of CUDA, in their emulation, and by libtorch's operators.
TEST(DeviceMatrices, ReadAsOnTheCpuWithoutAWait) {
  if (!gpu_kernels_run_on(kDevice)) GTEST_SKIP() << "this build has the kernels of CUDA";
  for (const MatrixFormat format : {MatrixFormat::int8, MatrixFormat::int4, MatrixFormat::nf4}) {
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{7, 128}, {64, 640}, {3, 96}, {5, 33}, {1, 1}}) {
      const QuantizedMatrix matrix = some_matrix(format, sizes);
      const QuantizedMatrix there{matrix.shape, on_device(matrix.bytes, kDevice)};
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const at::Tensor expected = at::empty(sizes, type);
        dequantize_matrix(matrix, expected);
        const at::Tensor by_kernels = at::empty(sizes, at::TensorOptions(type).device(kDevice));
        const at::Tensor by_operators = at::empty_like(by_kernels);
        {
          const CountWaits waits;
          dequantize_matrix(there, by_kernels);
          EXPECT_EQ(waits.hidden(), 0);
        }
        dequantize_by_operators(there, by_operators);
        EXPECT_TRUE(at::equal(by_kernels.cpu(), expected))
            << name_of(format) << " " << sizes << " " << type;
        EXPECT_TRUE(at::equal(by_operators.cpu(), expected))
            << name_of(format) << " " << sizes << " " << type;
      }
    }
  }
}

}  // namespace
}  // namespace strait::kernels
