// The part of CUDA's runtime that the kernels call, for the test device: a launch is put on its
// stream there, and runs in the emulation when the stream comes to it. tests/gpu has another, with
// streams and memory of its own.
#include <cuda_runtime.h>

#include <utility>

#include "tests/device/streams.h"
#include "tests/device/test_device.h"

namespace emulated {

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& thread);

void queue_launch(const void* /*kernel*/, dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, std::function<void()> thread) {
  namespace test_device = strait::test_device;
  test_device::Streams::all().issue(
      test_device::stream_of_handle(stream),
      [=, work = std::move(thread)] { run_grid(grid, block, shared_bytes, work); });
}

}  // namespace emulated

const char* cudaGetErrorString(cudaError_t /*error*/) { return "no error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*attribute*/,
                                 int /*value*/) {
  return cudaSuccess;
}
