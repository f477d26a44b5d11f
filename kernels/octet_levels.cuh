#pragma once

#include "kernels/octet_rounding.cuh"
#include "kernels/slots.cuh"

// From values to levels: the encoder's arithmetic of an octet.
namespace strait::kernels {

// An octet, rotated if its group is, and the scale codes of its group. Groups of zeros and refused
// groups have the special codes.
struct WeighedOctet {
  Octet values;
  std::uint16_t scale_code;  // the one that is written
  // the one that levels are chosen with; differs for unbiased rounding
  std::uint16_t rounding_code;
};

// How a token is quantised.
struct Quantising {
  Rounding rounding;
  float reach;
  std::uint64_t words;        // of the draw
  std::uint32_t first_index;  // of the token in its row
};

// Chooses the scale of the octet's group, and rotates the octet if that makes the scale smaller.
template <int kBits>
__device__ inline WeighedOctet weigh(const Octet& values, const StagedToken<kBits>& token,
                                     int octet, const Quantising& how) {
  const int group = token.group_size();
  const int number = token.group_of(octet);
  WeighedOctet result{values, kZeroScaleCode, kZeroScaleCode};
  const std::uint32_t plain = largest_bits(values, group);
  std::uint32_t largest = plain;
  bool turned = false;
  const bool refused = plain >= kHugeBits;
  if (token.rotate) {
    Octet rotated = values;
    turn(rotated, group, turn_factor(group));
    const std::uint32_t size = largest_bits(rotated, group);
    turned = !refused && token.is_whole(number) &&
             turned_size(float_of_bits(size), group) < float_of_bits(plain);
    if (turned) {
      result.values = rotated;
      largest = size;
    }
  }
  const std::uint16_t code = scale_code_of(float_of_bits(largest), how.reach);
  auto marked = static_cast<std::uint16_t>(turned ? code | kTurned : code);
  if (fits_mean_square(kBits, how.rounding)) {
    marked = fitted(result.values, marked, group, min(group, token.width - number * group));
  }
  std::uint16_t written = marked;
  if (restores_length(kBits, how.rounding)) {
    written = restored<kBits>(result.values, marked, group, how.words,
                              how.first_index + static_cast<std::uint32_t>(number * group),
                              token.place_of(octet));
  }
  if (refused) {
    result.scale_code = result.rounding_code = kRefusedScaleCode;
  } else if (plain != 0) {
    result.scale_code = written;
    result.rounding_code = marked;
  }
  return result;
}

// Eight levels, one per byte, of a group with a scale; 0 after the end of the token. `place`: of
// the first value in its group.
template <int kBits>
__device__ inline void levels_of_octet(const WeighedOctet& weighed, float scale, int place,
                                       int octet, int count, const Quantising& how,
                                       std::uint32_t& low, std::uint32_t& high) {
  if (restores_length(kBits, how.rounding)) scale = scale_of_code(weighed.rounding_code);
  const float inverse = inverse_of(scale);
  const std::uint32_t index = how.first_index + static_cast<std::uint32_t>(octet * kOctet);
  low = high = 0;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const float steps = __fmul_rn(weighed.values.value[i], inverse);
    int level = 0;
    if (restores_length(kBits, how.rounding)) {
      level = unbiased_level<kBits>(steps, how.words, index - static_cast<std::uint32_t>(place),
                                    place + i);
    } else {
      level = nearest_level<kBits>(steps);
    }
    if (i >= count) level = 0;
    (i < 4 ? low : high) |= static_cast<std::uint32_t>(level) << (8 * (i % 4));
  }
}

// Stores the scale code of the octet's group in the slot; returns its part of the top exponent.
template <int kBits>
__device__ inline int note_code(const Slot& slot, const StagedToken<kBits>& token, int octet,
                                std::uint16_t scale_code) {
  if (octet * kOctet >= token.width) return 0;
  const int group = token.group_of(octet);
  if (token.is_first(octet)) slot.scale_codes()[group] = scale_code;
  return scale_code == kRefusedScaleCode ? 0 : (scale_code & ~kTurned) >> 3;
}

// Writes the octet's planes; zeros if its group has no scale. Returns the values that they decode
// to, before the inverse rotation; values after the end of the token are undefined.
template <int kBits>
__device__ inline Octet write_weighed(const StagedToken<kBits>& token, const WeighedOctet& weighed,
                                      int octet, int top, const Quantising& how) {
  const int count = count_of(octet, token.width);
  const std::uint8_t byte = scale_byte(weighed.scale_code, top);
  Octet known = {};
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  if (byte != kZeroGroup && byte != kRefusedGroup) {
    const float scale = scale_of(byte, top, kBits);
    levels_of_octet<kBits>(weighed, scale, token.place_of(octet), octet, count, how, low, high);
    known = values_of_levels<kBits>(low, high, scale);
  }
  if (count > 0) write_octet(token, octet, low, high);
  return known;
}

}  // namespace strait::kernels
