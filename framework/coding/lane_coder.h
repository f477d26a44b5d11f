#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "framework/net/frame_memory.h"

namespace strait::coding {

// Interleaved rANS (asymmetric numeral systems). A message is a few integers, the lanes. A symbol
// of frequency `size` of 2^bits makes a lane 2^bits / size times as large, so it costs its entropy,
// to fractions of a bit; when a lane grows too large, 16 bits of it are written. A reader undoes
// that from the last symbol to the first, so the writer encodes in reverse order. Both ends must
// know the lane and the frequencies of each symbol. Symbols in different lanes do not depend on
// each other, so a processor works on several at a time.
inline constexpr std::size_t kLanes = 4;
inline constexpr unsigned kMostScaleBits = 16;
// Bytes that are not entropy coded follow the lanes; the first of them are the lanes' initial
// values.
inline constexpr std::size_t kPlainInLanes = 3 * kLanes;

class LaneWriter {
 public:
  // A symbol with the cumulative frequencies [below, below + size) of 2^bits.
  void put(std::size_t lane, std::uint32_t below, std::uint32_t size, unsigned bits) {
    symbols_.push_back({static_cast<std::uint16_t>(below), static_cast<std::uint8_t>(lane),
                        static_cast<std::uint8_t>(bits), size});
  }
  void reserve(std::size_t symbols) { symbols_.reserve(symbols); }

  // Appends the message with the plain bytes at its end, and resets the writer. Without symbols and
  // plain bytes it appends nothing.
  void finish(std::span<const std::byte> plain, net::Frame& out);

 private:
  struct Symbol {
    std::uint16_t below;
    std::uint8_t lane;
    std::uint8_t bits;
    std::uint32_t size;
  };
  std::vector<Symbol> symbols_;
  std::vector<std::uint16_t> words_;
};

// Decodes any bytes to some symbols. finish() detects a message that does not end with its symbols.
class LaneReader {
 public:
  explicit LaneReader(std::span<const std::byte> bytes);

  // The cumulative frequency of the next symbol, of 2^bits; take() must be called with its symbol.
  std::uint32_t peek(std::size_t lane, unsigned bits) const {
    return static_cast<std::uint32_t>(lanes_[lane] & ((std::uint64_t{1} << bits) - 1));
  }
  void take(std::size_t lane, std::uint32_t below, std::uint32_t size, unsigned bits) {
    std::uint64_t& number = lanes_[lane];
    number = size * (number >> bits) + peek(lane, bits) - below;
    // No branch: whether a word follows is unpredictable.
    const bool short_of = number < kLeast;
    number = short_of ? number << 16U | words_[at_] : number;
    at_ += short_of && at_ < words_.size() - 1 ? 1U : 0U;
  }

  // The plain bytes after all symbols; false: there are fewer, or more.
  bool finish(std::size_t count, std::vector<std::byte>& plain) const;

 private:
  friend class LaneWriter;
  static constexpr std::uint64_t kLeast = std::uint64_t{1} << 24U;  // of a lane; most: 2^40 - 1

  std::array<std::uint64_t, kLanes> lanes_{};
  bool cut_;                          // shorter than the lanes
  std::span<const std::byte> rest_;   // after the lanes
  std::vector<std::uint16_t> words_;  // rest_ as words, and a zero after them
  std::size_t at_ = 0;
};

}  // namespace strait::coding
