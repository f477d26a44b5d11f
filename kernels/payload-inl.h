// A token's groups to their planes and back. Included once per instruction set, like lanes-inl.h.
#if defined(STRAIT_KERNELS_PAYLOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_PAYLOAD_INL_H_
#undef STRAIT_KERNELS_PAYLOAD_INL_H_
#else
#define STRAIT_KERNELS_PAYLOAD_INL_H_
#endif

#include "kernels/groups-inl.h"
#include "kernels/lengths-inl.h"
#include "kernels/planes-inl.h"
#include "kernels/token_header.h"
#include "kernels/token_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Writes the planes of a token's groups. The scale bytes are already in `out`, and with unbiased
// rounding the levels are in `scratch`. All levels are written before any plane: reading a vector
// while smaller parts of it are still in the store buffer would stall.
template <int kBits, Rounding kRounding>
HWY_NOINLINE void write_groups(TokenScratch& scratch, std::int64_t width, const GroupFormat& format,
                               std::uint8_t* out) {
  const int size = format.group;
  const std::int64_t groups = groups_of(format, width);
  for (std::int64_t g = 0; g < groups; ++g) {
    float* const values = scratch.values() + g * size;
    const std::uint16_t scale_code = scratch.scale_codes()[g];
    if (scale_code == kZeroScaleCode || scale_code == kRefusedScaleCode) {
      std::fill(values, values + size, scale_code == kZeroScaleCode ? 0.0F : -0.0F);
      std::fill(scratch.levels() + g * size, scratch.levels() + (g + 1) * size, std::uint8_t{0});
    } else {
      const float scale = scale_of(out[1 + g], out[0], kBits);
      if constexpr (kRounding == Rounding::unbiased) {
        expand_levels<kBits>(scratch.levels() + g * size, size, scale, values);
      } else {
        round_group<kBits>(values, size, scale, scratch.levels() + g * size);
      }
      if ((scale_code & kTurned) != 0) turn(values, size, turn_back_factor(size));
    }
  }
  std::fill(scratch.values() + width, scratch.values() + groups * size, 0.0F);
  std::uint8_t* planes = out + planes_offset(format, groups);
  for (std::int64_t g = 0; g < width / size; ++g) {
    pack_planes<kBits>(scratch.levels() + g * size, size, planes);
    planes += kBits * std::ptrdiff_t{size / 8};
  }
  if (const auto rest = static_cast<int>(width % size); rest != 0) {
    pack_tail<kBits>(scratch.levels() + width - rest, rest, size, planes);
  }
}

// Unbiased rounding: levels, and scale codes that restore the groups' lengths.
template <int kBits>
HWY_INLINE void level_groups(TokenScratch& scratch, std::int64_t groups, int size,
                             std::uint64_t words, std::uint32_t index) {
  for (std::int64_t g = 0; g < groups; ++g) {
    std::uint16_t& scale_code = scratch.scale_codes()[g];
    if (scale_code == kZeroScaleCode || scale_code == kRefusedScaleCode) continue;
    const auto first = static_cast<std::uint32_t>(g * size);
    scale_code = level_group<kBits>(scratch.values() + first, size, scale_code, words,
                                    index + first, scratch.levels() + first);
  }
}

template <Rounding kRounding>
HWY_INLINE void write_groups_of(TokenScratch& scratch, std::int64_t width,
                                const GroupFormat& format, std::uint8_t* out) {
  switch (format.bits) {
    case 2:
      return write_groups<2, kRounding>(scratch, width, format, out);
    case 3:
      return write_groups<3, kRounding>(scratch, width, format, out);
    case 4:
      return write_groups<4, kRounding>(scratch, width, format, out);
    case 5:
      return write_groups<5, kRounding>(scratch, width, format, out);
    case 6:
      return write_groups<6, kRounding>(scratch, width, format, out);
    case 7:
      return write_groups<7, kRounding>(scratch, width, format, out);
    default:
      return write_groups<8, kRounding>(scratch, width, format, out);
  }
}

template <int kBits>
HWY_NOINLINE void read_groups(const std::uint8_t* in, std::int64_t width, const GroupFormat& format,
                              float* values) {
  const std::int64_t groups = groups_of(format, width);
  const std::uint8_t* planes = in + planes_offset(format, groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto count = static_cast<int>(std::min<std::int64_t>(format.group, width));
    const bool whole = count == format.group;
    const std::uint8_t byte = in[1 + g];
    if (byte == kZeroGroup || byte == kRefusedGroup) {
      std::fill(values, values + format.group, byte == kZeroGroup ? 0.0F : -0.0F);
    } else {
      HWY_ALIGN std::uint8_t levels[kWidestGroup];
      if (whole) {
        unpack_planes<kBits>(planes, format.group, levels);
      } else {
        unpack_tail<kBits>(planes, count, format.group, levels);
      }
      expand_levels<kBits>(levels, format.group, scale_of(byte, in[0], kBits), values);
      if (whole && is_turned(in, format, groups, g)) {
        turn(values, format.group, turn_back_factor(format.group));
      }
      if (!whole) std::fill(values + count, values + format.group, 0.0F);
    }
    planes += kBits * std::ptrdiff_t{(count + 7) / 8};
    values += format.group;
    width -= format.group;
  }
}

// Decodes a token written by write_token().
HWY_INLINE void read_token(const std::uint8_t* in, std::int64_t width, const GroupFormat& format,
                           float* values) {
  switch (format.bits) {
    case 2:
      return read_groups<2>(in, width, format, values);
    case 3:
      return read_groups<3>(in, width, format, values);
    case 4:
      return read_groups<4>(in, width, format, values);
    case 5:
      return read_groups<5>(in, width, format, values);
    case 6:
      return read_groups<6>(in, width, format, values);
    case 7:
      return read_groups<7>(in, width, format, values);
    default:
      return read_groups<8>(in, width, format, values);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
