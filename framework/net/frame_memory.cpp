#include "framework/net/frame_memory.h"

#include <array>
#include <bit>

#include "framework/mutex.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(place, bytes) (static_cast<void>(0))
#define ASAN_UNPOISON_MEMORY_REGION(place, bytes) (static_cast<void>(0))
#endif

namespace strait::net {
namespace {

// Four sizes per power of two. Frames of a run differ from step to step with the lengths of their
// rows; classes this coarse let them reuse each other's blocks.
constexpr std::size_t kSizesPerPower = 4;
constexpr std::size_t kPowers = 24;  // up to 64 GiB, larger than any frame

std::size_t block_class(std::size_t bytes) {
  const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes
  const std::size_t quarter = (std::size_t{1} << power) / kSizesPerPower;
  const std::size_t quarters = (bytes - 1 - (std::size_t{1} << power)) / quarter;
  return (power - 11) * kSizesPerPower + quarters;
}

std::size_t block_bytes(std::size_t size_class) {
  const std::size_t power = std::size_t{1} << (size_class / kSizesPerPower + 11);
  return power + (size_class % kSizesPerPower + 1) * (power / kSizesPerPower);
}

// A free block holds the pointer to the next free block of its size.
struct KeptBlock {
  KeptBlock* next;
};

struct KeptBlocks {
  Mutex mutex;
  std::array<KeptBlock*, kPowers * kSizesPerPower> first STRAIT_GUARDED_BY(mutex) = {};
  std::size_t bytes STRAIT_GUARDED_BY(mutex) = 0;
};

// Never destroyed, because frames that outlive main() return their memory here.
KeptBlocks& kept_blocks() {
  static KeptBlocks& blocks = *new KeptBlocks;
  return blocks;
}

}  // namespace

std::byte* FrameMemory::take(std::size_t bytes) {
  if (bytes < kReusedBytes) return static_cast<std::byte*>(::operator new(bytes));
  const std::size_t size_class = block_class(bytes);
  KeptBlocks& kept = kept_blocks();
  // The lock covers only the list: operator new below may take long.
  {
    const MutexLock lock(kept.mutex);
    if (KeptBlock* block = kept.first.at(size_class); block != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(block, block_bytes(size_class));
      kept.first.at(size_class) = block->next;
      kept.bytes -= block_bytes(size_class);
      return reinterpret_cast<std::byte*>(block);
    }
  }
  return static_cast<std::byte*>(::operator new(block_bytes(size_class)));
}

void FrameMemory::give_back(std::byte* block, std::size_t bytes) noexcept {
  if (bytes >= kReusedBytes) {
    const std::size_t size_class = block_class(bytes);
    KeptBlocks& kept = kept_blocks();
    const MutexLock lock(kept.mutex);
    if (kept.bytes + block_bytes(size_class) <= kKeptBytes) {
      kept.first.at(size_class) =
          ::new (static_cast<void*>(block)) KeptBlock{kept.first.at(size_class)};
      kept.bytes += block_bytes(size_class);
      // The pointer stays readable, because the leak checker follows it.
      ASAN_POISON_MEMORY_REGION(block + sizeof(KeptBlock),
                                block_bytes(size_class) - sizeof(KeptBlock));
      return;
    }
  }
  ::operator delete(block);
}

std::size_t FrameMemory::kept_bytes() {
  const MutexLock lock(kept_blocks().mutex);
  return kept_blocks().bytes;
}

}  // namespace strait::net
