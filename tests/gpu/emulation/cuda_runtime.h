#pragma once

#include <vector_types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

// CUDA for a compiler that knows none, for tests: what the kernels use of the language and of the
// runtime library. Threads of a block are fibers, which change places at every barrier and at every
// operation of a warp, in an order that a seed decides; streams run as late as they may. See
// emulated_gpu.cpp, and memory_checks.cpp for what it finds.

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

#define STRAIT_LAUNCH(kernel, grid, block, bytes, stream) \
  emulated::Launch(&kernel, grid, block, static_cast<std::size_t>(bytes), stream)
#define STRAIT_SHARED_MEMORY(name) unsigned char* const name = emulated::shared_memory()
#define STRAIT_GPU_DEVICE "test"  // tests/device

// Of the thread that runs.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

// --- the runtime library

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
struct cudaFuncAttributes {};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaMalloc(void** data, std::size_t size);
cudaError_t cudaMallocAsync(void** data, std::size_t size, cudaStream_t stream);
cudaError_t cudaMallocHost(void** data, std::size_t size);
cudaError_t cudaFree(void* data);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int byte, std::size_t size);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t size, cudaStream_t stream = nullptr);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* /*kernel*/) {
  return cudaSuccess;
}

namespace emulated {

// Decides all orders from here on.
void set_seed(std::uint32_t seed);

unsigned char* shared_memory();
void queue_launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, std::function<void()> thread);

// All lanes of `mask` call the same operation; each gets what `from_lane` gave.
enum class WarpCall { none, shuffle, ballot };
std::uint64_t exchange(WarpCall call, unsigned mask, std::uint64_t mine, unsigned from_lane);
unsigned ballot(unsigned mask, bool mine);
void before_atomic(void* address, std::size_t size);

template <class... Parameters>
class Launch {
 public:
  Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
         cudaStream_t stream)
      : kernel_(kernel), grid_(grid), block_(block), bytes_(shared_bytes), stream_(stream) {}

  template <class... Arguments>
  void operator()(const Arguments&... arguments) const {
    queue_launch(reinterpret_cast<const void*>(kernel_), grid_, block_, bytes_, stream_,
                 [kernel = kernel_, arguments...] { kernel(arguments...); });
  }

 private:
  void (*kernel_)(Parameters...);
  dim3 grid_;
  dim3 block_;
  std::size_t bytes_;
  cudaStream_t stream_;
};

}  // namespace emulated

// --- the language

void __syncthreads();
void __threadfence();

template <class Value>
Value __shfl_xor_sync(unsigned mask, Value value, int stride) {
  static_assert(sizeof(Value) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = emulated::exchange(emulated::WarpCall::shuffle, mask, bits,
                            (threadIdx.x % 32) ^ static_cast<unsigned>(stride));
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return emulated::ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return emulated::ballot(mask, predicate != 0) != 0 ? 1 : 0;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

template <class Number>
Number atomicAdd(Number* to, Number value) {
  emulated::before_atomic(to, sizeof(*to));
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class Value>
Value __ldcg(const Value* from) {
  return *from;
}

inline float __fadd_rn(float left, float right) { return left + right; }
inline float __fsub_rn(float left, float right) { return left - right; }
inline float __fmul_rn(float left, float right) { return left * right; }
using std::max;
using std::min;
