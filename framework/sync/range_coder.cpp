#include "framework/sync/range_coder.h"

namespace strait::sync {
namespace {

constexpr std::size_t kWordBytes = 4;

}  // namespace

void RangeEncoder::carry() {
  for (std::size_t i = words_.size(); i-- > 0;) {
    if (++words_[i] != 0) return;
  }
}

void RangeEncoder::finish(net::Frame& out) {
  // Of all numbers in the interval the one with the most zeros behind it, which are not sent.
  const std::uint64_t last = low_ + (range_ - 1);
  // `last` may have wrapped around, so distances from it are compared.
  std::uint64_t value = 0;
  for (unsigned zeros = 56; last - value > range_ - 1; zeros -= 8) value = last >> zeros << zeros;
  if (value < low_) carry();
  words_.push_back(static_cast<std::uint32_t>(value >> 32U));
  words_.push_back(static_cast<std::uint32_t>(value));
  const std::size_t begin = out.size();
  out.resize(begin + words_.size() * kWordBytes);
  std::byte* to = out.data() + begin;
  for (const std::uint32_t word : words_) {
    for (unsigned shift = 32; shift > 0; shift -= 8) *to++ = std::byte(word >> (shift - 8));
  }
  while (out.size() > begin && out.back() == std::byte{0}) out.pop_back();
}

RangeDecoder::RangeDecoder(std::span<const std::byte> bytes) : bytes_(bytes) {
  code_ = std::uint64_t{next_word()} << 32U;
  code_ |= next_word();
}

std::uint32_t RangeDecoder::next_word() {
  std::uint32_t word = 0;
  for (std::size_t i = at_; i < at_ + kWordBytes; ++i) {
    word = word << 8U | (i < bytes_.size() ? std::to_integer<std::uint32_t>(bytes_[i]) : 0);
  }
  at_ += kWordBytes;
  return word;
}

// The encoder ends with the two words that the decoder looks ahead by.
bool RangeDecoder::finish() const {
  const bool canonical = bytes_.empty() || bytes_.back() != std::byte{0};
  return bytes_.size() <= at_ && code_ < range_ && canonical;
}

}  // namespace strait::sync
