// One token at a time, in TokenScratch: the steps of which the operations consist. Read once per
// instruction set, as lanes-inl.h.
#if defined(STRAIT_KERNELS_TOKENS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_TOKENS_INL_H_
#undef STRAIT_KERNELS_TOKENS_INL_H_
#else
#define STRAIT_KERNELS_TOKENS_INL_H_
#endif

#include "kernels/groups-inl.h"
#include "kernels/planes-inl.h"
#include "kernels/token_head.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels {
namespace HWY_NAMESPACE {

// Chooses the notch of a whole group, and turns it where that makes it smaller.
HWY_INLINE std::uint16_t weigh_group(float* values, int group, bool may_turn, float reach,
                                     std::uint32_t refused_from) {
  const std::uint32_t bits = largest_bits(values, group);
  if (bits >= refused_from) return kRefusedNotch;
  if (bits == 0) return kZeroNotch;
  const float size = float_of_bits(bits);
  if (!may_turn) return notch_of(size, reach);
  HWY_ALIGN float turned[kWidestGroup];
  std::memcpy(turned, values, static_cast<std::size_t>(group) * sizeof(float));
  turn(turned, group, turn_factor(group));
  const float largest = float_of_bits(largest_bits(turned, group));
  if (turned_size(largest, group) >= size) return notch_of(size, reach);
  std::memcpy(values, turned, static_cast<std::size_t>(group) * sizeof(float));
  return static_cast<std::uint16_t>(notch_of(largest, reach) | kTurned);
}

// Writes a token, and turns `values` into what the reader will know: in place, whole groups, zeros
// behind the width. Sizes from `refused_from` on are refused. Values of refused groups become -0,
// which changes nothing that it is added to.
HWY_INLINE void write_token(float* values, std::uint16_t* notches, std::int64_t width,
                            const GroupFormat& format, const Draw& draw, std::uint32_t first_index,
                            std::uint32_t refused_from, std::uint8_t* out) {
  const std::int64_t groups = groups_of(format, width);
  const float reach = reach_of(format.bits, draw.rounding);
  for (std::int64_t g = 0; g < groups; ++g) {
    const bool may_turn = format.rotate && (g + 1) * format.group <= width;
    notches[g] =
        weigh_group(values + g * format.group, format.group, may_turn, reach, refused_from);
  }
  const int top = write_token_head(notches, format, width, out);
  const std::uint64_t words = draw_words(draw.key);
  std::uint8_t* planes = out + planes_offset(format, groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    float* const group = values + g * format.group;
    const auto count =
        static_cast<int>(std::min<std::int64_t>(format.group, width - g * format.group));
    const int plane_bytes = format.bits * ((count + 7) / 8);
    if (notches[g] == kZeroNotch || notches[g] == kRefusedNotch) {
      std::fill(planes, planes + plane_bytes, std::uint8_t{0});
      std::fill(group, group + format.group, notches[g] == kZeroNotch ? 0.0F : -0.0F);
    } else {
      HWY_ALIGN std::uint8_t levels[kWidestGroup];
      const float scale = scale_of(out[1 + g], top, format.bits);
      const auto index = first_index + static_cast<std::uint32_t>(g * format.group);
      if (draw.rounding == Rounding::nearest) {
        round_group<Rounding::nearest>(group, format.group, format.bits, scale, words, index,
                                       levels);
      } else {
        round_group<Rounding::stochastic>(group, format.group, format.bits, scale, words, index,
                                          levels);
      }
      if (count == format.group) {
        pack_planes(levels, format.group, format.bits, planes);
      } else {
        pack_tail(levels, count, format.group, format.bits, planes);
        std::fill(group + count, group + format.group, 0.0F);
      }
      if ((notches[g] & kTurned) != 0) turn(group, format.group, turn_back_factor(format.group));
    }
    planes += plane_bytes;
  }
}

// A token to its values, as write_token() leaves them.
HWY_INLINE void read_token(const std::uint8_t* in, std::int64_t width, const GroupFormat& format,
                           float* values) {
  const std::int64_t groups = groups_of(format, width);
  const std::uint8_t* planes = in + planes_offset(format, groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    float* const group = values + g * format.group;
    const auto count =
        static_cast<int>(std::min<std::int64_t>(format.group, width - g * format.group));
    const std::uint8_t byte = in[1 + g];
    if (byte == kZeroGroup || byte == kRefusedGroup) {
      std::fill(group, group + format.group, byte == kZeroGroup ? 0.0F : -0.0F);
    } else {
      HWY_ALIGN std::uint8_t levels[kWidestGroup];
      const bool whole = count == format.group;
      if (whole) {
        unpack_planes(planes, format.group, format.bits, levels);
      } else {
        unpack_tail(planes, count, format.group, format.bits, levels);
      }
      expand_levels(levels, format.group, format.bits, scale_of(byte, in[0], format.bits), group);
      if (whole && is_turned(in, format, groups, g)) {
        turn(group, format.group, turn_back_factor(format.group));
      }
      if (!whole) std::fill(group + count, group + format.group, 0.0F);
    }
    planes += format.bits * ((count + 7) / 8);
  }
}

// Values to elements.
template <class T>
HWY_INLINE void write_values(const float* values, std::int64_t width, T* out) {
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    store_upto(hn::Load(Lanes(), values + i), out + i, width - i);
  }
}

// A bfloat16 entry takes in the change: `values` are the change, then what the entry stands for.
template <class Base>
HWY_INLINE void advance_entry(Base base, float* values, std::int64_t width, Bfloat16* entry) {
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    const auto sum =
        hn::Add(load_upto(advanced(base, i), width - i), hn::Load(Lanes(), values + i));
    const auto bits = rounded_to_bfloat16(sum);
    const auto known = hn::BitCast(Lanes(), hn::ShiftLeft<16>(bits));
    hn::Store(known, Lanes(), values + i);
    store_upto(known, entry + i, width - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strait::kernels
HWY_AFTER_NAMESPACE();

#endif
