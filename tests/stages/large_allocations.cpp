#include "tests/stages/large_allocations.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define STRAIT_WATCHES_MEMORY 0
#else
#define STRAIT_WATCHES_MEMORY 1
#endif

namespace {

// Callers of the last allocations. A plain array: recording must not allocate.
std::array<std::atomic<void*>, 1 << 16> callers{};
std::atomic<std::uint64_t> calls = 0;

}  // namespace

#if STRAIT_WATCHES_MEMORY
namespace {

void note_call(std::size_t bytes, void* caller) {
  if (bytes < strait::stages::LargeAllocations::kLarge) return;
  callers[calls.fetch_add(1) % callers.size()] = caller;
}

}  // namespace

// NOLINTBEGIN: the names and the form of these are the C library's.
extern "C" {
void __libc_free(void* block);
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  note_call(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  note_call(count * bytes, __builtin_return_address(0));
  return __libc_calloc(count, bytes);
}

void* realloc(void* block, std::size_t bytes) {
  note_call(bytes, __builtin_return_address(0));
  return __libc_realloc(block, bytes);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  note_call(bytes, __builtin_return_address(0));
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note_call(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
}

void* operator new(std::size_t bytes) {
  note_call(bytes, __builtin_return_address(0));
  void* block = __libc_malloc(std::max<std::size_t>(bytes, 1));
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

// The compiler does not know that the operator new above uses malloc.
void operator delete(void* block) noexcept { __libc_free(block); }
void operator delete(void* block, std::size_t) noexcept { __libc_free(block); }
// NOLINTEND
#endif

namespace strait::stages {

bool LargeAllocations::available() { return STRAIT_WATCHES_MEMORY != 0; }

std::uint64_t LargeAllocations::count() { return calls; }

std::map<std::string, std::uint64_t> LargeAllocations::by_library(std::uint64_t since) {
  std::map<std::string, std::uint64_t> found;
  const std::uint64_t until = calls;
  for (std::uint64_t i = since; i < until; ++i) {
    Dl_info info{};
    const bool known = dladdr(callers[i % callers.size()], &info) != 0;
    const std::string path = known ? info.dli_fname : "?";
    ++found[path.substr(path.rfind('/') + 1)];
  }
  return found;
}

}  // namespace strait::stages
