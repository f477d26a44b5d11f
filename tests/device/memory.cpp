#include "tests/device/memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace strait::test_device {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 32U;  // of addresses
constexpr std::size_t kPage = 4096;

}  // namespace

void* Memory::take(c10::DeviceIndex device, std::size_t bytes) {
  // Whole pages: a small overrun reads poison.
  const std::size_t size = std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
  Arena& arena = arenas_.at(static_cast<std::size_t>(device));
  if (arena.begin == nullptr) {
    void* const begin =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(begin != MAP_FAILED, "the test device found no addresses");
    arena.begin = static_cast<std::byte*>(begin);
  }
  std::vector<void*>& free = arena.free[size];
  void* block = nullptr;
  if (free.empty()) {
    TORCH_CHECK(arena.used + size <= kArenaBytes, "the test device is out of memory");
    block = arena.begin + arena.used;
    arena.used += size;
  } else {
    block = free.back();
    free.pop_back();
  }
  poison(block, size);
  blocks_[block] = {device, size};
  arena.taken += static_cast<std::int64_t>(size);
  arena.most_taken = std::max(arena.most_taken, arena.taken);
  return block;
}

std::pair<std::int64_t, std::int64_t> Memory::taken(c10::DeviceIndex device) const {
  const Arena& arena = arenas_.at(static_cast<std::size_t>(device));
  return {arena.taken, arena.most_taken};
}

void Memory::give_back(void* block) {
  const auto found = blocks_.find(block);
  TORCH_INTERNAL_ASSERT(found != blocks_.end(), "freed twice");
  poison(block, found->second.size);
  Arena& arena = arenas_.at(static_cast<std::size_t>(found->second.device));
  arena.free[found->second.size].push_back(block);
  arena.taken -= static_cast<std::int64_t>(found->second.size);
  blocks_.erase(found);
}

// Opens this block alone, which is cheaper than all of them. A new one is still closed.
void Memory::poison(void* block, std::size_t size) const {
  TORCH_CHECK(mprotect(block, size, PROT_READ | PROT_WRITE) == 0, "mprotect failed");
  std::memset(block, kPoison, size);
  if (depth_ == 0) TORCH_CHECK(mprotect(block, size, PROT_NONE) == 0, "mprotect failed");
}

void Memory::open() {
  if (depth_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void Memory::close() {
  if (--depth_ == 0) protect(PROT_NONE);
}

void Memory::protect(int protection) const {
  for (const Arena& arena : arenas_) {
    if (arena.used == 0) continue;
    TORCH_CHECK(mprotect(arena.begin, arena.used, protection) == 0, "mprotect failed");
  }
}

}  // namespace strait::test_device
