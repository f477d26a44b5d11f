#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/gpu/emulation/emulated_gpu.h"

// The GPU's memory, watched byte by byte. Kernels are compiled with -fsanitize=thread, but these
// functions stand for that sanitizer's library: they see every access and know which threads of a
// GPU a barrier, or an operation of a warp, has put in order. They find two threads at one byte
// without that, one of them writing; unwritten reads; accesses outside of any memory, or
// off their alignment; and host code that reads the GPU's own memory.
namespace emulated {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 26U;

// Who came last.
struct Access {
  std::uint32_t launch = 0;  // 0: none
  std::uint32_t block = 0;
  std::uint32_t thread = 0;
  std::uint32_t barriers = 0;
  std::uint32_t exchanges = 0;
  std::uint32_t fences = 0;
  bool atomic = false;
  bool many_threads = false;  // of the warp, since its last exchange
  bool many_warps = false;    // since the block's last barrier
};

enum class State : std::uint8_t { none, allocated, written };

struct Cell {
  Access write;
  Access read;
  State state;
  MemoryKind kind;
};

template <class Item>
Item* reserve(std::size_t count) {
  void* const memory = mmap(nullptr, count * sizeof(Item), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<Item*>(memory);
}

std::uint8_t* const arena = reserve<std::uint8_t>(kArenaBytes);
Cell* const cells = reserve<Cell>(kArenaBytes);
std::map<std::size_t, std::size_t> allocations;  // offset, size

std::size_t offset_of(const void* data) {
  return static_cast<std::size_t>(static_cast<const std::uint8_t*>(data) - arena);
}

// Whether nothing puts `before` and the running thread in order.
bool is_unordered(const Access& before, const Position& now) {
  if (before.launch != now.launch) return false;
  if (before.block != now.block) {
    // A counter that every block adds to after its fence; the one that reads it goes on.
    const std::uint32_t fences =
        now.fences[std::size_t{before.block} * now.threads + before.thread];
    return !(now.atomic_seen && (before.atomic || fences > before.fences));
  }
  if (before.barriers != now.barriers) return false;
  if (before.thread == now.thread && !before.many_threads && !before.many_warps) return false;
  if (before.thread / 32 == now.thread / 32 && !before.many_warps) {
    return before.exchanges == now.exchanges;
  }
  return true;
}

Access made_by(const Position& now, bool atomic) {
  const std::uint32_t fences = now.fences[std::size_t{now.block} * now.threads + now.thread];
  return {now.launch, now.block, now.thread, now.barriers, now.exchanges, fences, atomic};
}

void note_read(Access& read, const Position& now, bool atomic) {
  Access next = made_by(now, atomic);
  if (read.launch == now.launch && read.block == now.block && read.barriers == now.barriers) {
    next.many_warps = read.many_warps || read.thread / 32 != now.thread / 32;
    next.many_threads =
        read.exchanges == now.exchanges && (read.many_threads || read.thread != now.thread);
  }
  read = next;
}

void check(const void* data, std::size_t size, bool writes, bool atomic, bool aligned) {
  const std::size_t first = offset_of(data);
  if (first >= kArenaBytes) return;
  const Position& now = position();
  if (!now.in_kernel) {
    if (cells[first].kind != MemoryKind::pinned) fail("the host touches the GPU's memory");
    return;
  }
  if (aligned && first % size != 0) fail("an access off its alignment");
  for (Cell* cell = cells + first; cell != cells + first + size; ++cell) {
    if (cell->state == State::none) fail("an access outside of all memory");
    if (!writes && cell->state != State::written) fail("a read of what no thread has written");
    const bool both_atomic = atomic && cell->write.atomic;
    if (!both_atomic && is_unordered(cell->write, now)) {
      fail(writes ? "two threads write one byte, and nothing orders them"
                  : "a read of what another thread writes, and nothing orders them");
    }
    if (writes && !(atomic && cell->read.atomic) && is_unordered(cell->read, now)) {
      fail("a write of what another thread reads, and nothing orders them");
    }
    if (writes) {
      cell->write = made_by(now, atomic);
      cell->state = State::written;
    } else {
      note_read(cell->read, now, atomic);
    }
  }
}

}  // namespace

void* allocate(std::size_t size, MemoryKind kind) {
  constexpr std::size_t kAlignment = 256;
  constexpr std::size_t kGap = 64;
  std::size_t at = kAlignment;
  if (!allocations.empty()) at = allocations.rbegin()->first + allocations.rbegin()->second + kGap;
  at = (at + kAlignment - 1) / kAlignment * kAlignment;
  if (at + size + kGap > kArenaBytes) return nullptr;
  allocations[at] = size;
  // What the host has, it may have written.
  const State state = kind == MemoryKind::pinned ? State::written : State::allocated;
  for (std::size_t i = at; i < at + size; ++i) cells[i] = {{}, {}, state, kind};
  return arena + at;
}

void release(void* data) {
  const auto found = allocations.find(offset_of(data));
  if (found == allocations.end()) fail("memory is freed that is not allocated");
  std::memset(static_cast<void*>(cells + found->first), 0, found->second * sizeof(Cell));
  allocations.erase(found);
}

void mark_written(const void* data, std::size_t size) {
  const std::size_t first = offset_of(data);
  if (first >= kArenaBytes) return;
  for (std::size_t i = first; i < first + size; ++i) {
    if (cells[i].state == State::none) fail("a copy goes beyond its memory");
    cells[i].state = State::written;
  }
}

void note_atomic(const void* data, std::size_t size) {
  check(data, size, false, true, true);
  check(data, size, true, true, true);
}

}  // namespace emulated

// What compilers call. Sizes of one byte are always aligned.
#define STRAIT_ACCESS(size)                                  \
  extern "C" void __tsan_read##size(void* data) {            \
    emulated::check(data, size, false, false, true);         \
  }                                                          \
  extern "C" void __tsan_write##size(void* data) {           \
    emulated::check(data, size, true, false, true);          \
  }                                                          \
  extern "C" void __tsan_unaligned_read##size(void* data) {  \
    emulated::check(data, size, false, false, false);        \
  }                                                          \
  extern "C" void __tsan_unaligned_write##size(void* data) { \
    emulated::check(data, size, true, false, false);         \
  }
STRAIT_ACCESS(1)
STRAIT_ACCESS(2)
STRAIT_ACCESS(4)
STRAIT_ACCESS(8)
STRAIT_ACCESS(16)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* data, std::size_t size) {
  emulated::check(data, size, false, false, false);
}
void __tsan_write_range(void* data, std::size_t size) {
  emulated::check(data, size, true, false, false);
}
// Atomics of the host's own library, and those that before_atomic() has seen.
std::uint32_t __tsan_atomic32_fetch_add(volatile std::uint32_t* to, std::uint32_t value, int) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
std::uint64_t __tsan_atomic64_fetch_add(volatile std::uint64_t* to, std::uint64_t value, int) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
}
