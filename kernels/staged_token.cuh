#pragma once

#include "kernels/octet_groups.cuh"

// A quantised token in shared memory, where bytes may be read and written one at a time.
namespace strait::kernels {

template <int kBits>
struct StagedToken {
  std::uint8_t* bytes;
  int width;
  int shift;  // a group has 1 << shift values
  bool rotate;
  int groups;
  int planes_at;

  __device__ StagedToken(std::uint8_t* memory, GroupFormat format, int token_width)
      : bytes(memory),
        width(token_width),
        shift(format.group == 32   ? 5
              : format.group == 64 ? 6
                                   : 7),
        rotate(format.rotate),
        groups((token_width + (1 << shift) - 1) >> shift),
        planes_at(1 + groups + (rotate ? (groups + 7) / 8 : 0)) {}

  __device__ int group_size() const { return 1 << shift; }
  __device__ int group_of(int octet) const { return octet * kOctet >> shift; }
  // The position of the octet's first value in its group.
  __device__ int place_of(int octet) const { return octet * kOctet & (group_size() - 1); }
  __device__ bool is_first(int octet) const { return place_of(octet) == 0; }
  __device__ bool is_whole(int group) const { return ((group + 1) << shift) <= width; }
  __device__ int size() const {
    const int tail = width - ((groups - 1) << shift);
    return planes_at + kBits * (((groups - 1) << shift) / 8 + (tail + 7) / 8);
  }
  // The octet's byte of the lowest plane; `stride` bytes from one plane to the next.
  __device__ std::uint8_t* planes(int octet, int& stride) const {
    const int group = group_of(octet);
    const int first = group << shift;
    stride = (min(width - first, group_size()) + 7) / 8;
    return bytes + planes_at + kBits * (first / 8) + (octet - first / kOctet);
  }
};

// How many values of an octet are before the end of the token: 8, fewer, or none.
__device__ inline int count_of(int octet, int width) {
  return max(0, min(kOctet, width - octet * kOctet));
}

template <int kBits>
__device__ inline Octet values_of_levels(std::uint32_t low, std::uint32_t high, float scale) {
  Octet octet;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const int level = static_cast<int>(((i < 4 ? low : high) >> (8 * (i % 4))) & 0xFFU);
    const int odd = 2 * level - (levels_of(kBits) - 1);
    octet.value[i] = __fmul_rn(static_cast<float>(odd), scale);
  }
  return octet;
}

// The values that an octet's bytes decode to, rotated back; zeros after the token. Values of
// refused groups are -0, which changes no sum; the result is then true.
template <int kBits>
__device__ inline bool read_octet(const StagedToken<kBits>& token, int octet, Octet& values) {
  const int count = count_of(octet, token.width);
  bool refused = false;
  bool turned = false;
  values = {};
  if (count > 0) {
    const int group = token.group_of(octet);
    const std::uint8_t byte = token.bytes[1 + group];
    refused = byte == kRefusedGroup;
    if (refused) {
      for (float& value : values.value) value = -0.0F;
    } else if (byte != kZeroGroup) {
      int stride = 0;
      const std::uint8_t* const planes = token.planes(octet, stride);
      std::uint32_t low = 0;
      std::uint32_t high = 0;
#pragma unroll
      for (int bit = 0; bit < kBits; ++bit) {
        const std::uint32_t plane = planes[bit * stride];
        (bit < 4 ? low : high) |= plane << (8 * (bit % 4));
      }
      transpose_bits(low, high);
      values = values_of_levels<kBits>(low, high, scale_of(byte, token.bytes[0], kBits));
      const std::uint8_t flags = token.rotate ? token.bytes[1 + token.groups + group / 8] : 0;
      turned = (flags >> (group % 8) & 1) != 0 && token.is_whole(group);
      if (count < kOctet) {
        for (int i = 0; i < kOctet; ++i) values.value[i] = i < count ? values.value[i] : 0.0F;
      }
    }
  }
  if (token.rotate && __any_sync(kAllLanes, turned) != 0) {
    Octet back = values;
    turn(back, token.group_size(), turn_back_factor(token.group_size()));
    if (turned) values = back;
  }
  return refused;
}

// Writes an octet's levels to its planes: `low` has levels 0 to 3, one per byte.
template <int kBits>
__device__ inline void write_octet(const StagedToken<kBits>& token, int octet, std::uint32_t low,
                                   std::uint32_t high) {
  int stride = 0;
  std::uint8_t* const planes = token.planes(octet, stride);
  transpose_bits(low, high);
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
    planes[bit * stride] = static_cast<std::uint8_t>((bit < 4 ? low : high) >> (8 * (bit % 4)));
  }
}

}  // namespace strait::kernels
