#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace strait::kernels {

inline void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// Memory of the GPU, or pinned memory of the host.
class GpuMemory {
 public:
  enum class Kind { device, pinned };

  explicit GpuMemory(Kind kind) : kind_(kind) {}
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() {
    if (data_ == nullptr) return;
    if (kind_ == Kind::device) {
      cudaFree(data_);
    } else {
      cudaFreeHost(data_);
    }
  }

  // Once.
  void reserve(std::size_t size) {
    size_ = size == 0 ? 1 : size;
    require(kind_ == Kind::device ? cudaMalloc(&data_, size_) : cudaMallocHost(&data_, size_));
  }
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }

 private:
  Kind kind_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace strait::kernels
