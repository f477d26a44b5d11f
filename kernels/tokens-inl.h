// Steps of the operations for one token, in TokenScratch. Included once per instruction set, like
// lanes-inl.h.
#if defined(STRAIT_KERNELS_TOKENS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_TOKENS_INL_H_
#undef STRAIT_KERNELS_TOKENS_INL_H_
#else
#define STRAIT_KERNELS_TOKENS_INL_H_
#endif

#include "kernels/payload-inl.h"
#include "kernels/token_header.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Chooses the scale code of a whole group, and rotates the group if that makes the scale smaller.
HWY_INLINE std::uint16_t weigh_group(float* values, int group, bool may_turn, float reach) {
  const std::uint32_t bits = largest_bits(values, group);
  if (bits >= kHugeBits) return kRefusedScaleCode;
  if (bits == 0) return kZeroScaleCode;
  const float size = float_of_bits(bits);
  if (!may_turn) return scale_code_of(size, reach);
  HWY_ALIGN float turned[kWidestGroup];
  std::memcpy(turned, values, static_cast<std::size_t>(group) * sizeof(float));
  turn(turned, group, turn_factor(group));
  const float largest = float_of_bits(largest_bits(turned, group));
  if (turned_size(largest, group) >= size) return scale_code_of(size, reach);
  std::memcpy(values, turned, static_cast<std::size_t>(group) * sizeof(float));
  return static_cast<std::uint16_t>(scale_code_of(largest, reach) | kTurned);
}

// Scale codes that fit the mean squares of the groups.
HWY_INLINE void fit_groups(TokenScratch& scratch, std::int64_t width, int size) {
  for (std::int64_t g = 0; g * size < width; ++g) {
    std::uint16_t& scale_code = scratch.scale_codes()[g];
    if (scale_code == kZeroScaleCode || scale_code == kRefusedScaleCode) continue;
    const float squares =
        squares_of(scratch.values() + g * size, size, inverse_of(scale_of_code(scale_code)));
    const auto count = static_cast<int>(std::min<std::int64_t>(size, width - g * size));
    scale_code = fitted_code(scale_code, squares, count);
  }
}

// Writes the token in scratch.values(), and replaces the values in place by what the reader will
// decode: whole groups, zeros after the width. Huge values are refused. Values of refused groups
// become -0, which changes no sum.
inline HWY_NOINLINE void write_token(TokenScratch& scratch, std::int64_t width,
                                     const GroupFormat& format, const Draw& draw,
                                     std::uint32_t first_index, std::uint8_t* out) {
  float* const values = scratch.values();
  std::uint16_t* const scale_codes = scratch.scale_codes();
  const std::int64_t groups = groups_of(format, width);
  const float reach = reach_of(format.bits, draw.rounding);
  for (std::int64_t g = 0; g < groups; ++g) {
    const bool may_turn = format.rotate && (g + 1) * format.group <= width;
    scale_codes[g] = weigh_group(values + g * format.group, format.group, may_turn, reach);
  }
  if (restores_length(format.bits, draw.rounding)) {
    const std::uint64_t words = draw_words(draw.key);
    if (format.bits == 2) level_groups<2>(scratch, groups, format.group, words, first_index);
    if (format.bits == 3) level_groups<3>(scratch, groups, format.group, words, first_index);
    if (format.bits == 4) level_groups<4>(scratch, groups, format.group, words, first_index);
    if (format.bits == 5) level_groups<5>(scratch, groups, format.group, words, first_index);
    write_token_header(scale_codes, format, width, out);
    write_groups_of<Rounding::unbiased>(scratch, width, format, out);
    return;
  }
  if (fits_mean_square(format.bits, draw.rounding)) fit_groups(scratch, width, format.group);
  write_token_header(scale_codes, format, width, out);
  write_groups_of<Rounding::nearest>(scratch, width, format, out);
}

// Values to elements.
template <class T>
HWY_INLINE void write_values(const float* values, std::int64_t width, T* out) {
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    store_upto(hn::Load(Lanes(), values + i), out + i, width - i);
  }
}

// Adds the change to a bfloat16 entry: `values` are the change, then the entry's new values.
template <class Base>
HWY_INLINE void advance_entry(Base base, float* values, std::int64_t width, Bfloat16* entry) {
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    const auto sum =
        hn::Add(load_upto(advanced(base, i), width - i), hn::Load(Lanes(), values + i));
    const auto bits = rounded_to_bfloat16(sum);
    hn::Store(hn::BitCast(Lanes(), hn::ShiftLeft<16>(bits)), Lanes(), values + i);
    if (width - i >= lane_count()) {
      store_halves(hn::TruncateTo(HalfLanes(), bits), entry + i);
    } else {
      store_upto(sum, entry + i, width - i);
    }
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
