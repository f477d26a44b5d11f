#include "kernels/token_scratch.h"

#include <new>

namespace strait::kernels {

TokenScratch& TokenScratch::of_thread(std::int64_t width) {
  thread_local TokenScratch scratch;
  if (width > scratch.width_) scratch.grow(width);
  return scratch;
}

void TokenScratch::grow(std::int64_t width) {
  constexpr std::int64_t kWidestGroup = 128;
  const auto room = static_cast<std::size_t>((width / kWidestGroup + 1) * kWidestGroup);
  width_ = 0;
  values_ = hwy::AllocateAligned<float>(room);
  scale_codes_ = hwy::AllocateAligned<std::uint16_t>(room);
  levels_ = hwy::AllocateAligned<std::uint8_t>(room);
  if (!values_ || !scale_codes_ || !levels_) throw std::bad_alloc();
  width_ = width;
}

}  // namespace strait::kernels
