// The groups of a token to their planes and back. Read once per instruction set, as lanes-inl.h.
#if defined(STRAIT_KERNELS_PAYLOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_PAYLOAD_INL_H_
#undef STRAIT_KERNELS_PAYLOAD_INL_H_
#else
#define STRAIT_KERNELS_PAYLOAD_INL_H_
#endif

#include "kernels/groups-inl.h"
#include "kernels/planes-inl.h"
#include "kernels/token_head.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels {
namespace HWY_NAMESPACE {

// The groups of a token from their notches to their planes; the scale bytes are in `out`.
template <int kBits, Rounding kRounding>
HWY_NOINLINE void write_groups(float* values, const std::uint16_t* notches, std::int64_t width,
                               const GroupFormat& format, std::uint64_t words, std::uint32_t index,
                               std::uint8_t* out) {
  const std::int64_t groups = groups_of(format, width);
  std::uint8_t* planes = out + planes_offset(format, groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto count = static_cast<int>(std::min<std::int64_t>(format.group, width));
    if (notches[g] == kZeroNotch || notches[g] == kRefusedNotch) {
      std::fill(planes, planes + kBits * ((count + 7) / 8), std::uint8_t{0});
      std::fill(values, values + format.group, notches[g] == kZeroNotch ? 0.0F : -0.0F);
    } else {
      HWY_ALIGN std::uint8_t levels[kWidestGroup];
      const float scale = scale_of(out[1 + g], out[0], kBits);
      round_group<kBits, kRounding>(values, format.group, scale, words, index, levels);
      if (count == format.group) {
        pack_planes<kBits>(levels, format.group, planes);
      } else {
        pack_tail<kBits>(levels, count, format.group, planes);
        std::fill(values + count, values + format.group, 0.0F);
      }
      if ((notches[g] & kTurned) != 0) turn(values, format.group, turn_back_factor(format.group));
    }
    planes += kBits * ((count + 7) / 8);
    values += format.group;
    index += static_cast<std::uint32_t>(format.group);
    width -= format.group;
  }
}

template <Rounding kRounding>
HWY_INLINE void write_groups_of(float* values, const std::uint16_t* notches, std::int64_t width,
                                const GroupFormat& format, std::uint64_t words, std::uint32_t index,
                                std::uint8_t* out) {
  switch (format.bits) {
    case 2:
      return write_groups<2, kRounding>(values, notches, width, format, words, index, out);
    case 3:
      return write_groups<3, kRounding>(values, notches, width, format, words, index, out);
    case 4:
      return write_groups<4, kRounding>(values, notches, width, format, words, index, out);
    case 5:
      return write_groups<5, kRounding>(values, notches, width, format, words, index, out);
    case 6:
      return write_groups<6, kRounding>(values, notches, width, format, words, index, out);
    case 7:
      return write_groups<7, kRounding>(values, notches, width, format, words, index, out);
    default:
      return write_groups<8, kRounding>(values, notches, width, format, words, index, out);
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
    planes += kBits * ((count + 7) / 8);
    values += format.group;
    width -= format.group;
  }
}

// A token to its values, as write_token() leaves them.
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

}  // namespace HWY_NAMESPACE
}  // namespace strait::kernels
HWY_AFTER_NAMESPACE();

#endif
