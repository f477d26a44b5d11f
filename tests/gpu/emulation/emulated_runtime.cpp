#include <cuda_runtime.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/gpu/emulation/emulated_gpu.h"

// The runtime library: memory, streams and events. Nothing runs before somebody waits for it.

struct EmulatedStream {
  std::deque<std::function<void()>> work;
};
struct EmulatedEvent {
  cudaStream_t stream = nullptr;
  bool passed = true;
};

namespace emulated {

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& thread);

namespace {

constexpr std::size_t kSharedUnasked = 48U * 1024;
constexpr std::size_t kSharedMost = 227U * 1024;  // as sm_90 has
cudaError_t last_error = cudaSuccess;
EmulatedStream first_stream;
std::set<EmulatedStream*> streams;
std::map<const void*, std::size_t> shared_granted;

EmulatedStream& stream_of(cudaStream_t stream) {
  return stream == nullptr ? first_stream : *stream;
}

void run_one(EmulatedStream& stream) {
  const std::function<void()> next = std::move(stream.work.front());
  stream.work.pop_front();
  next();
}

void run_all(EmulatedStream& stream) {
  while (!stream.work.empty()) run_one(stream);
}

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t allocate_into(void** data, std::size_t size, MemoryKind kind) {
  *data = allocate(size, kind);
  return note(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

}  // namespace

void queue_launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, std::function<void()> thread) {
  const auto granted = shared_granted.find(kernel);
  const std::size_t most = granted == shared_granted.end() ? kSharedUnasked : granted->second;
  const unsigned threads = block.x * block.y * block.z;
  if (shared_bytes > most || threads == 0 || threads > 1024 || grid.x * grid.y * grid.z == 0 ||
      grid.y > 65535 || grid.z > 65535) {
    note(cudaErrorInvalidValue);
    return;
  }
  stream_of(stream).work.push_back(
      [=, work = std::move(thread)] { run_grid(grid, block, shared_bytes, work); });
}

}  // namespace emulated

using emulated::MemoryKind;
using emulated::note;
using emulated::stream_of;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    default:
      return "out of memory";
  }
}
cudaError_t cudaGetLastError() { return std::exchange(emulated::last_error, cudaSuccess); }

cudaError_t cudaMalloc(void** data, std::size_t size) {
  return emulated::allocate_into(data, size, MemoryKind::device);
}
cudaError_t cudaMallocAsync(void** data, std::size_t size, cudaStream_t) {
  return cudaMalloc(data, size);
}
cudaError_t cudaMallocHost(void** data, std::size_t size) {
  return emulated::allocate_into(data, size, MemoryKind::pinned);
}
cudaError_t cudaFree(void* data) {
  cudaDeviceSynchronize();
  if (data != nullptr) emulated::release(data);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  stream_of(stream).work.push_back([data] { emulated::release(data); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream_of(stream).work.push_back([to, from, size] {
    std::memcpy(to, from, size);
    emulated::mark_written(to, size);
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, size, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t size, cudaStream_t stream) {
  stream_of(stream).work.push_back([to, byte, size] {
    std::memset(to, byte, size);
    emulated::mark_written(to, size);
  });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int byte, std::size_t size) {
  cudaMemsetAsync(to, byte, size, nullptr);
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = *emulated::streams.insert(std::make_unique<EmulatedStream>().release()).first;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulated::run_all(*stream);
  emulated::streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  emulated::run_all(stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  emulated::run_all(emulated::first_stream);
  for (EmulatedStream* const stream : emulated::streams) emulated::run_all(*stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = std::make_unique<EmulatedEvent>().release();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cudaEventSynchronize(event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->passed = false;
  stream_of(stream).work.push_back([event] { event->passed = true; });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  while (!event->passed) emulated::run_one(stream_of(event->stream));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream_of(stream).work.push_back([event] { cudaEventSynchronize(event); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;  // there is no time here
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (value < 0 || static_cast<std::size_t>(value) > emulated::kSharedMost) {
    return note(cudaErrorInvalidValue);
  }
  emulated::shared_granted[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
