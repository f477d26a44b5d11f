#include "tests/device/memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace strait::test_device {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 32U;  // of addresses
// The kernel changes the protection of one of these as fast as of a page of 4 KiB. A device that is
// protected around every operator spends nearly all of its time there otherwise.
constexpr std::size_t kHugePage = std::size_t{1} << 21U;
constexpr std::size_t kAlignment = 256;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Addresses for an arena, without memory yet.
std::byte* reserve() {
  std::size_t size = kArenaBytes + kHugePage;
  void* begin = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(begin != MAP_FAILED, "the test device found no addresses");
  TORCH_CHECK(std::align(kHugePage, kArenaBytes, begin, size) != nullptr);
  madvise(begin, kArenaBytes, MADV_HUGEPAGE);  // where the kernel has them
  return static_cast<std::byte*>(begin);
}

}  // namespace

void* Memory::take(c10::DeviceIndex device, std::size_t bytes) {
  // With a part that is not used: a small overrun reads poison.
  const std::size_t size = rounded_up(bytes + 1, kAlignment);
  Arena& arena = arenas_.at(static_cast<std::size_t>(device));
  if (arena.begin == nullptr) arena.begin = reserve();
  std::vector<void*>& free = arena.free[size];
  void* block = nullptr;
  if (free.empty()) {
    TORCH_CHECK(arena.used + size <= kArenaBytes, "the test device is out of memory");
    block = arena.begin + arena.used;
    arena.used += size;
    if (depth_ > 0) protect(PROT_READ | PROT_WRITE);  // what is new is still closed
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

void Memory::poison(void* block, std::size_t size) {
  const Open opened(*this);
  std::memset(block, kPoison, size);
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
    TORCH_CHECK(mprotect(arena.begin, rounded_up(arena.used, kHugePage), protection) == 0,
                "mprotect failed");
  }
}

}  // namespace strait::test_device
