// How both sides update a sample's entry, token by token. Included once per instruction set, like
// lanes-inl.h.
#if defined(STRAIT_KERNELS_ENTRIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_ENTRIES_INL_H_
#undef STRAIT_KERNELS_ENTRIES_INL_H_
#else
#define STRAIT_KERNELS_ENTRIES_INL_H_
#endif

#include "kernels/token_scratch.h"
#include "kernels/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

HWY_INLINE void read_eight_bits(const std::uint8_t* entry, std::int64_t width, float* values) {
  read_token(entry, width, kEntryFormat, values);
}

// Stores the first `width` of `values`, and replaces them by the values that the entry decodes to.
// Only values that are not finite would be refused, because an entry may be slightly above kHuge.
HWY_INLINE void write_eight_bits(TokenScratch& scratch, std::int64_t width, std::uint8_t* entry) {
  float* const values = scratch.values();
  std::fill(values + width, values + groups_of(kEntryFormat, width) * kEntryFormat.group, 0.0F);
  write_token(scratch, width, kEntryFormat, Draw{}, 0, kInfinityBits, entry);
}

// Adds the change in scratch.values() to an 8-bit entry, relative to scratch.base(), and replaces
// it by the values that the entry then decodes to. If groups of the message were refused, nothing
// changes.
HWY_INLINE void advance_eight_bits(TokenScratch& scratch, std::int64_t width, bool fresh,
                                   bool refused, std::uint8_t* entry) {
  float* const values = scratch.values();
  if (!refused) {
    for (std::int64_t i = 0; i < width; i += lane_count()) {
      const auto base = fresh ? hn::Zero(Lanes()) : hn::Load(Lanes(), scratch.base() + i);
      hn::Store(hn::Add(base, hn::Load(Lanes(), values + i)), Lanes(), values + i);
    }
    return write_eight_bits(scratch, width, entry);
  }
  if (fresh) {
    std::fill(entry, entry + token_bytes(kEntryFormat, width), std::uint8_t{0});
    std::fill(values, values + width, 0.0F);
  } else {
    std::copy(scratch.base(), scratch.base() + width, values);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
