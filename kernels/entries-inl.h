// What both sides do to a sample's entry, token by token. Read once per instruction set, as
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

// Stores the first `width` of `values` and leaves there what the entry stands for. Only values that
// are not finite would be refused: an entry may come to lie a little above kHuge.
HWY_INLINE void write_eight_bits(TokenScratch& scratch, std::int64_t width, std::uint8_t* entry) {
  float* const values = scratch.values();
  std::fill(values + width, values + groups_of(kEntryFormat, width) * kEntryFormat.group, 0.0F);
  write_token(scratch, width, kEntryFormat, Draw{}, 0, kInfinityBits, entry);
}

// An 8-bit entry takes in the change in scratch.values(), counted from scratch.base(); what it then
// stands for is left in their place. With refused groups in the message nothing of it moves.
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
