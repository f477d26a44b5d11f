#pragma once

#include <hwy/aligned_allocator.h>

#include <cstdint>

namespace strait::kernels {

// Memory in which a CPU call holds a token. One per thread; it grows to the widest token of the
// thread, so that a steady state does not allocate. Arrays are aligned and have room for whole
// groups.
class TokenScratch {
 public:
  static TokenScratch& of_thread(std::int64_t width);

  // The change, then the values as the receiver decodes them.
  float* values() { return values_.get(); }
  std::uint16_t* scale_codes() { return scale_codes_.get(); }
  std::uint8_t* levels() { return levels_.get(); }

 private:
  void grow(std::int64_t width);

  std::int64_t width_ = 0;
  hwy::AlignedFreeUniquePtr<float[]> values_;
  hwy::AlignedFreeUniquePtr<std::uint16_t[]> scale_codes_;
  hwy::AlignedFreeUniquePtr<std::uint8_t[]> levels_;
};

}  // namespace strait::kernels
