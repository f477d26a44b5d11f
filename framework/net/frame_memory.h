#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace strait::net {

// The memory of frames. Returned blocks of kReusedBytes and more are kept by size, up to kKeptBytes
// in the whole process. Links that carry frames of similar sizes in every step then allocate
// nothing. Any thread.
class FrameMemory {
 public:
  static constexpr std::size_t kReusedBytes = std::size_t{4} << 10;
  static constexpr std::size_t kKeptBytes = std::size_t{256} << 20;

  static std::byte* take(std::size_t bytes);
  // `bytes`: as passed to take()
  static void give_back(std::byte* block, std::size_t bytes) noexcept;

  // Bytes that are free for reuse now.
  static std::size_t kept_bytes();
};

// Makes a vector of bytes use FrameMemory. Bytes added by resize() are uninitialized: the code that
// makes a frame larger writes them.
template <class Byte>
class FrameAllocator {
  static_assert(std::is_same_v<Byte, std::byte>, "frames are bytes");

 public:
  using value_type = Byte;

  Byte* allocate(std::size_t count) { return FrameMemory::take(count); }
  void deallocate(Byte* block, std::size_t count) noexcept { FrameMemory::give_back(block, count); }

  template <class Made>
  void construct(Made* place) noexcept {
    ::new (static_cast<void*>(place)) Made;
  }
  template <class Made, class... From>
  void construct(Made* place, From&&... from) {
    ::new (static_cast<void*>(place)) Made(std::forward<From>(from)...);
  }

  bool operator==(const FrameAllocator&) const { return true; }
};

// What a link carries: opaque bytes.
using Frame = std::vector<std::byte, FrameAllocator<std::byte>>;

}  // namespace strait::net
