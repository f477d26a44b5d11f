#pragma once

#include <cstddef>
#include <cstdint>

// How values become few bits, and where those lie. Constants that the CPU and the GPU code share;
// the page is kernels/QUANTIZED.md.
namespace strait::kernels {

enum class Element : std::uint8_t { float32, bfloat16, float16 };

constexpr std::int64_t bytes_of(Element element) { return element == Element::float32 ? 4 : 2; }

// Groups of `group` adjacent values along a token's width share a scale; the last one of a token
// may be shorter. A value is an odd multiple of its group's scale: level c of 0 … 2^bits − 1 stands
// for (2c − (2^bits − 1)) · scale.
struct GroupFormat {
  int bits = 4;         // 2 … 8
  int group = 64;       // 32, 64 or 128
  bool rotate = false;  // groups with outliers are spread by a Hadamard rotation first
  bool operator==(const GroupFormat&) const = default;
};

constexpr std::int64_t groups_of(const GroupFormat& format, std::int64_t width) {
  return (width + format.group - 1) / format.group;
}

// A quantised token: the top exponent (1 byte), a scale byte per group, with `rotate` a bit per
// group (rounded up to bytes), then per group `bits` planes of one bit per value, lowest first,
// each rounded up to bytes.
constexpr std::int64_t token_bytes(const GroupFormat& format, std::int64_t width) {
  const std::int64_t groups = groups_of(format, width);
  const std::int64_t tail = width - (groups - 1) * format.group;
  return 1 + groups + (format.rotate ? (groups + 7) / 8 : 0) +
         format.bits * ((groups - 1) * (format.group / 8) + (tail + 7) / 8);
}

// Scale bytes that are no scale. 1 … 254 are: the float whose bits are (byte + 8·top − 247) << 20.
inline constexpr std::uint8_t kZeroGroup = 0;          // every value is zero
inline constexpr std::uint8_t kRefusedGroup = 255;     // NaN, infinite or huge: reads as NaN
inline constexpr float kHuge = 1.329227995784916e36F;  // 2^120: from here on a value is refused

// nearest: smallest error; clips at 2 to 4 bits, so the result is up to 15 % too short. For values
// whose error comes back in the next message.
// unbiased: nearest levels, clipped at 2 and 3 bits, with the scale that restores the length:
// <decoded, value> is <value, value> in the mean over groups. For values that are sent once.
enum class Rounding : std::uint8_t { nearest, unbiased };

// unbiased draws from (key, index of the value in the row) and nothing else.
struct Draw {
  Rounding rounding = Rounding::nearest;
  std::uint64_t key = 0;
};

// What a sample's last visit left: its values in bfloat16.
constexpr std::int64_t entry_bytes(std::int64_t tokens, std::int64_t width) {
  return 2 * tokens * width;
}

// Sums over what was encoded, for reports: never part of anything that must be bit-equal. Refused
// groups are left out.
struct SquareSums {
  double value = 0;   // what was to be sent
  double change = 0;  // of it, what the other side did not know
  double error = 0;   // what the other side will not know
  std::int64_t refused_groups = 0;
};

// Contiguous values [tokens, width] owned by the caller.
struct Values {
  const void* data = nullptr;
  Element element = Element::float32;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
};
struct MutableValues {
  void* data = nullptr;
  Element element = Element::float32;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
};

}  // namespace strait::kernels
