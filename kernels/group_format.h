#pragma once

#include <cstddef>
#include <cstdint>

// How values become few bits, and the layout of these bits. Constants shared by CPU and GPU code;
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
// group (rounded up to bytes), then for each group `bits` planes of one bit per value, lowest
// first, each rounded up to bytes.
constexpr std::int64_t token_bytes(const GroupFormat& format, std::int64_t width) {
  const std::int64_t groups = groups_of(format, width);
  const std::int64_t tail = width - (groups - 1) * format.group;
  return 1 + groups + (format.rotate ? (groups + 7) / 8 : 0) +
         format.bits * ((groups - 1) * (format.group / 8) + (tail + 7) / 8);
}

// Scale bytes with a special meaning. 1 … 254 are scales: the float whose bits are (byte + 8·top −
// 247) << 20.
inline constexpr std::uint8_t kZeroGroup = 0;          // every value is zero
inline constexpr std::uint8_t kRefusedGroup = 255;     // NaN, infinite or huge: decodes as NaN
inline constexpr float kHuge = 1.329227995784916e36F;  // 2^120: values from here on are refused

// nearest: the smallest error. Clips at 2 to 4 bits, so the result is up to 15 % too short. For
// values whose error is corrected by the next message. unbiased: nearest levels, clipped at 2 and 3
// bits, with the scale that restores the length: the mean of <decoded, value> over groups is
// <value, value>. For values that are sent once.
enum class Rounding : std::uint8_t { nearest, unbiased };

// unbiased draws only from key and index of the value in the row.
struct Draw {
  Rounding rounding = Rounding::nearest;
  std::uint64_t key = 0;
};

// What is stored of a sample's last use: its values in bfloat16.
constexpr std::int64_t entry_bytes(std::int64_t tokens, std::int64_t width) {
  return 2 * tokens * width;
}

// Sums over encoded values, for reports only; they need not be bit-equal. Refused groups are left
// out.
struct SquareSums {
  double value = 0;   // of the values to be sent
  double change = 0;  // of the part that the other side did not know
  double error = 0;   // of the part that the other side will not know
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
