#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strait::sync {

// Numbers of a few bits one behind the other, low bits first, in whole bytes.
class PlainBitsWriter {
 public:
  explicit PlainBitsWriter(std::size_t bits) { bytes_.reserve(bits / 8 + sizeof(bits_)); }
  void put(std::uint32_t value, unsigned bits) {
    bits_ |= std::uint64_t{value} << held_;
    held_ += bits;
    while (held_ >= 8) {
      bytes_.push_back(std::byte(bits_));
      bits_ >>= 8U;
      held_ -= 8;
    }
  }
  // All of them; nothing may be put behind.
  std::span<const std::byte> finish() {
    if (held_ > 0) bytes_.push_back(std::byte(bits_));
    return bytes_;
  }

 private:
  std::vector<std::byte> bytes_;
  std::uint64_t bits_ = 0;
  unsigned held_ = 0;
};

class PlainBitsReader {
 public:
  explicit PlainBitsReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // There must be so many.
  std::uint32_t take(unsigned bits) {
    while (held_ < bits) {
      bits_ |= std::uint64_t{std::to_integer<std::uint8_t>(bytes_[at_++])} << held_;
      held_ += 8;
    }
    const auto value = static_cast<std::uint32_t>(bits_ & ((std::uint64_t{1} << bits) - 1));
    bits_ >>= bits;
    held_ -= bits;
    return value;
  }
  // Whether what is left of the last byte is zero.
  bool ends_in_zeros() const { return bits_ == 0; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t bits_ = 0;
  unsigned held_ = 0;
};

}  // namespace strait::sync
