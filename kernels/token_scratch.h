#pragma once

#include <hwy/aligned_allocator.h>

#include <cstdint>

namespace strait::kernels {

// Where a CPU call keeps a token while it works on it. One per thread; it grows to the widest token
// that the thread ever saw and stays, so that a steady state allocates nothing. Arrays are aligned
// and have room for whole groups.
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
