#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strait::sync {

// Numbers of a few bits (at most 32) one after the other, low bits first, padded to whole bytes.
class PlainBitsWriter {
 public:
  // `bits`: how many will be written. Replaces the content of `bytes` and reuses its memory.
  PlainBitsWriter(std::vector<std::byte>& bytes, std::size_t bits) : bytes_(bytes) {
    bytes_.resize((bits + 7) / 8 + kWordBytes);
  }
  void put(std::uint32_t value, unsigned bits) {
    bits_ |= std::uint64_t{value} << held_;
    held_ += bits;
    if (held_ >= 8 * kWordBytes) flush();
  }
  void finish() {
    const std::size_t size = at_ + (held_ + 7) / 8;
    flush();
    bytes_.resize(size);
  }

 private:
  static constexpr unsigned kWordBytes = 4;

  void flush() {
    for (unsigned i = 0; i < kWordBytes; ++i) bytes_[at_ + i] = std::byte(bits_ >> (8 * i));
    at_ += kWordBytes;
    bits_ >>= 8 * kWordBytes;
    held_ -= 8 * kWordBytes;
  }

  std::vector<std::byte>& bytes_;
  std::size_t at_ = 0;
  std::uint64_t bits_ = 0;
  unsigned held_ = 0;
};

// Reads zeros after the end of the bytes.
class PlainBitsReader {
 public:
  explicit PlainBitsReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint32_t take(unsigned bits) {
    if (held_ < bits) fill();
    const auto value = static_cast<std::uint32_t>(bits_ & ((std::uint64_t{1} << bits) - 1));
    bits_ >>= bits;
    held_ -= bits;
    return value;
  }
  // Whether only zeros are left.
  bool ends_in_zeros() const { return bits_ == 0 && at_ >= bytes_.size(); }

 private:
  void fill() {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 4 && at_ + i < bytes_.size(); ++i) {
      word |= std::to_integer<std::uint64_t>(bytes_[at_ + i]) << (8 * i);
    }
    at_ += 4;
    bits_ |= word << held_;
    held_ += 32;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t bits_ = 0;
  unsigned held_ = 0;
};

}  // namespace strait::sync
