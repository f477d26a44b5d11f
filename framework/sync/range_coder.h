#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// Range coding: a message is a number, and every symbol narrows the interval that it lies in to a
// part as large as the symbol's probability; so a symbol costs what it is worth, to fractions of a
// bit. Whole numbers only. What is a symbol's part of the interval is for both ends to know.
inline constexpr std::uint64_t kLeastRange = std::uint64_t{1} << 32;

class RangeEncoder {
 public:
  // A symbol that has the places [below, below + size) of 2^bits; bits at most 24.
  void put(std::uint32_t below, std::uint32_t size, unsigned bits) {
    narrow(range_ >> bits, below, size);
  }
  // One of `total` that are equally likely.
  void put_uniform(std::uint32_t value, std::uint32_t total) { narrow(range_ / total, value, 1); }

  // Appends the message; nothing may be put behind it.
  void finish(net::Frame& out);

 private:
  void narrow(std::uint64_t part, std::uint64_t below, std::uint64_t size) {
    const std::uint64_t add = part * below;
    low_ += add;
    if (low_ < add) carry();
    range_ = part * size;
    if (range_ < kLeastRange) {
      words_.push_back(static_cast<std::uint32_t>(low_ >> 32U));
      low_ <<= 32U;
      range_ <<= 32U;
    }
  }
  void carry();

  std::uint64_t low_ = 0;
  std::uint64_t range_ = ~std::uint64_t{0};
  std::vector<std::uint32_t> words_;
};

// Any bytes at all are read as some symbols; a message that does not end where its symbols do is
// found by finish().
class RangeDecoder {
 public:
  explicit RangeDecoder(std::span<const std::byte> bytes);

  // Which of 2^bits places comes next; take() the symbol that has it.
  std::uint32_t place(unsigned bits) {
    part_ = range_ >> bits;
    const std::uint64_t place = code_ / part_;
    const std::uint64_t last = (std::uint64_t{1} << bits) - 1;
    return static_cast<std::uint32_t>(place < last ? place : last);
  }
  void take(std::uint32_t below, std::uint32_t size) {
    code_ -= part_ * below;
    range_ = part_ * size;
    if (range_ < kLeastRange) {
      code_ = (code_ << 32U) | next_word();
      range_ <<= 32U;
    }
  }
  std::uint32_t uniform(std::uint32_t total) {
    part_ = range_ / total;
    const std::uint64_t value = code_ / part_;
    const auto found = static_cast<std::uint32_t>(value < total ? value : total - 1);
    take(found, 1);
    return found;
  }

  // Whether the symbols that were read are the message, no less and no more.
  bool finish() const;

 private:
  std::uint32_t next_word();

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;  // may lie behind the end, where all is zero
  std::uint64_t code_ = 0;
  std::uint64_t range_ = ~std::uint64_t{0};
  std::uint64_t part_ = 0;
};

}  // namespace strait::sync
