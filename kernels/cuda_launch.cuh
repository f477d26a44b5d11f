#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels/tokens.cuh"

// From the host to the blocks, and the sums back.
namespace strait::kernels {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("the GPU could not ") + what + ": " +
                           cudaGetErrorString(error));
}

inline unsigned blocks_for(std::int64_t tokens) {
  return static_cast<unsigned>(tokens < 65536 ? tokens : 65536);
}

inline std::size_t scale_code_bytes(const GroupFormat& format, std::int64_t width) {
  const std::int64_t entry_groups = groups_of(kEntryFormat, width);
  const std::int64_t groups = groups_of(format, width);
  return static_cast<std::size_t>(groups > entry_groups ? groups : entry_groups) *
         sizeof(std::uint16_t);
}

// SquareSums in the GPU's memory; takes part where the caller asked for them.
class DeviceSums {
 public:
  DeviceSums(SquareSums* host, cudaStream_t stream) : host_(host), stream_(stream) {
    if (host_ == nullptr) return;
    check_cuda(cudaMallocAsync(&device_, sizeof(SquareSums), stream_), "hold four sums");
    check_cuda(cudaMemsetAsync(device_, 0, sizeof(SquareSums), stream_), "clear four sums");
  }
  DeviceSums(const DeviceSums&) = delete;
  DeviceSums& operator=(const DeviceSums&) = delete;
  ~DeviceSums() {
    if (device_ != nullptr) cudaFreeAsync(device_, stream_);
  }

  SquareSums* device() const { return static_cast<SquareSums*>(device_); }

  // Waits for the stream.
  void collect() {
    if (host_ == nullptr) return;
    SquareSums sums;
    check_cuda(cudaMemcpyAsync(&sums, device_, sizeof(sums), cudaMemcpyDeviceToHost, stream_),
               "return four sums");
    check_cuda(cudaStreamSynchronize(stream_), "quantise a row");
    host_->value += sums.value;
    host_->change += sums.change;
    host_->error += sums.error;
    host_->refused_groups += sums.refused_groups;
  }

 private:
  SquareSums* host_;
  cudaStream_t stream_;
  void* device_ = nullptr;
};

// What one thread saw of a token; a token with refused groups is left out.
struct ThreadSums {
  double value = 0;
  double change = 0;
  double error = 0;

  // All threads, once per token.
  __device__ void add_to(SquareSums* sums, const Token& message) {
    if (sums == nullptr) return;
    int refused = 0;
    for (std::int64_t g = threadIdx.x; g < message.groups(); g += kThreads) {
      if (message.bytes[1 + g] == kRefusedGroup) ++refused;
    }
    if (refused != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&sums->refused_groups),
                static_cast<unsigned long long>(refused));
    }
    if (__syncthreads_or(refused) == 0) {
      for (double* const sum : {&value, &change, &error}) {
        for (int stride = 16; stride > 0; stride /= 2) {
          *sum += __shfl_xor_sync(kAllLanes, *sum, stride);
        }
      }
      if (lane_id() == 0) {
        atomicAdd(&sums->value, value);
        atomicAdd(&sums->change, change);
        atomicAdd(&sums->error, error);
      }
    }
    value = change = error = 0;
  }
};

}  // namespace strait::kernels
