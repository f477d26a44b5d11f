#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// Asymmetric numeral systems (rANS): a message is a few whole numbers, the lanes. A symbol that has
// `size` of 2^bits places makes a lane 2^bits / size times as large, so it costs what it is worth,
// to fractions of a bit; when a lane grows too large, 16 bits of it go out. A reader undoes that
// from the last symbol to the first, so the writer turns the order around. Which lane a symbol is
// in, and what its places are, is for both ends to know; symbols in different lanes do not wait for
// each other, which is what processors like.
inline constexpr std::size_t kLanes = 4;
inline constexpr unsigned kMostPlaceBits = 16;
// Plain bytes that cost the same and need no places; the first of them lie in the lanes'
// beginnings.
inline constexpr std::size_t kPlainInLanes = 3 * kLanes;

class LaneWriter {
 public:
  // A symbol that has the places [below, below + size) of 2^bits.
  void put(std::size_t lane, std::uint32_t below, std::uint32_t size, unsigned bits) {
    symbols_.push_back({static_cast<std::uint16_t>(below), static_cast<std::uint8_t>(lane),
                        static_cast<std::uint8_t>(bits), size});
  }
  void reserve(std::size_t symbols) { symbols_.reserve(symbols); }

  // Appends the message, the plain bytes as its end, and is ready for another one. Of nothing,
  // nothing.
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

// Any bytes at all are read as some symbols; a message that does not end where its symbols do is
// found by finish().
class LaneReader {
 public:
  explicit LaneReader(std::span<const std::byte> bytes);

  // Which of 2^bits places comes next; take() the symbol that has it.
  std::uint32_t place(std::size_t lane, unsigned bits) const {
    return static_cast<std::uint32_t>(lanes_[lane] & ((std::uint64_t{1} << bits) - 1));
  }
  void take(std::size_t lane, std::uint32_t below, std::uint32_t size, unsigned bits) {
    std::uint64_t& number = lanes_[lane];
    number = size * (number >> bits) + place(lane, bits) - below;
    // Without a branch: whether a word comes is as good as random.
    const bool short_of = number < kLeast;
    number = short_of ? number << 16U | words_[at_] : number;
    at_ += short_of && at_ < words_.size() - 1 ? 1U : 0U;
  }

  // The plain bytes behind all symbols; false: there are not so many, or others besides.
  bool finish(std::size_t count, std::vector<std::byte>& plain) const;

 private:
  friend class LaneWriter;
  static constexpr std::uint64_t kLeast = std::uint64_t{1} << 24U;  // of a lane; most: 2^40 - 1

  std::array<std::uint64_t, kLanes> lanes_{};
  bool cut_;                          // there are not even the lanes
  std::span<const std::byte> rest_;   // behind the lanes
  std::vector<std::uint16_t> words_;  // what rest_ may be read as, and a zero behind it
  std::size_t at_ = 0;
};

}  // namespace strait::sync
