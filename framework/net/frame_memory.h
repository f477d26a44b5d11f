#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace strait::net {

// Where the bytes of frames come from. Blocks of kReusedBytes and more are kept when they are given
// back, by sizes, up to kKeptBytes in the whole process, so that links which carry alike frames
// step after step ask the system for nothing. Any thread.
class FrameMemory {
 public:
  static constexpr std::size_t kReusedBytes = std::size_t{4} << 10;
  static constexpr std::size_t kKeptBytes = std::size_t{256} << 20;

  static std::byte* take(std::size_t bytes);
  static void give_back(std::byte* block, std::size_t bytes) noexcept;  // as was asked for

  // Held for the next to ask, now.
  static std::size_t kept_bytes();
};

// Makes a vector of bytes use it. Bytes that resize() adds are uninitialized: code that makes a
// frame larger writes them.
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
