#pragma once

#include <cstddef>
#include <cstdint>

// Between the parts of the emulation.
namespace emulated {

// Prints what the running thread did wrong, and ends the process with 3.
[[noreturn]] void fail(const char* text);

// Who runs, for memory_checks.cpp.
struct Position {
  bool in_kernel = false;
  std::uint32_t launch = 0;
  std::uint32_t block = 0;
  std::uint32_t thread = 0;
  std::uint32_t barriers = 0;       // of the block, so far
  std::uint32_t exchanges = 0;      // of all lanes of the warp, so far
  std::uint32_t* fences = nullptr;  // of this launch, by block and thread
  std::uint32_t threads = 0;        // of a block
  bool atomic_seen = false;         // in this block
};
const Position& position();

// Memory of the GPU. Where memory is not checked it is plain memory of the process.
enum class MemoryKind { device, pinned, shared };
void* allocate(std::size_t size, MemoryKind kind);
void release(void* data);
// Its bytes count as written.
void mark_written(const void* data, std::size_t size);
// An atomic access of the running thread: checked as a read and a write.
void note_atomic(const void* data, std::size_t size);

}  // namespace emulated
