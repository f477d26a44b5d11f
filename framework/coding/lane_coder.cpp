#include "framework/coding/lane_coder.h"

#include <algorithm>

namespace strait::coding {
namespace {

// A lane is below 2^40 between two symbols.
constexpr std::size_t kLaneBytes = 5;
constexpr std::size_t kWordBytes = 2;
constexpr std::size_t kPlainOfLane = kPlainInLanes / kLanes;

// Little endian.
std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t at, std::size_t count) {
  std::uint64_t number = 0;
  for (std::size_t i = std::min(at + count, bytes.size()); i-- > at;) {
    number = number << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return number;
}

std::byte* put_number(std::uint64_t number, std::size_t count, std::byte* to) {
  for (std::size_t i = 0; i < count; ++i) *to++ = std::byte(number >> (8 * i));
  return to;
}

}  // namespace

void LaneWriter::finish(std::span<const std::byte> plain, net::Frame& out) {
  if (symbols_.empty() && plain.empty()) return;
  std::array<std::uint64_t, kLanes> lanes{};
  for (std::size_t i = 0; i < kLanes; ++i) {
    // Lanes begin at kLeast with plain bytes in their low bits, so the initial state carries data.
    lanes[i] = LaneReader::kLeast | number_at(plain, i * kPlainOfLane, kPlainOfLane);
  }
  // At most one word per symbol, written from the end: readers decode in reverse order.
  words_.resize(symbols_.size() + 1);
  std::uint16_t* word = words_.data() + words_.size() - 1;
  for (std::size_t i = symbols_.size(); i-- > 0;) {
    const Symbol& symbol = symbols_[i];
    std::uint64_t& lane = lanes[symbol.lane];
    std::uint64_t number = lane;
    // Writes the word unconditionally and moves on only if the lane is too large: no branch, since
    // whether it is, is unpredictable.
    const bool full = number >= std::uint64_t{symbol.size} << (40U - symbol.bits);
    *word = static_cast<std::uint16_t>(number);
    word -= full ? 1 : 0;
    number = full ? number >> 16U : number;
    const std::uint64_t whole = number / symbol.size;
    lane = (whole << symbol.bits) + (number - whole * symbol.size) + symbol.below;
  }
  ++word;
  symbols_.clear();
  const auto count = static_cast<std::size_t>(words_.data() + words_.size() - word);
  const auto after = plain.subspan(std::min(plain.size(), kPlainInLanes));
  const std::size_t begin = out.size();
  out.resize(begin + kLanes * kLaneBytes + count * kWordBytes + after.size());
  std::byte* to = out.data() + begin;
  for (const std::uint64_t lane : lanes) to = put_number(lane, kLaneBytes, to);
  for (std::size_t i = 0; i < count; ++i) to = put_number(word[i], kWordBytes, to);
  std::copy(after.begin(), after.end(), to);
}

LaneReader::LaneReader(std::span<const std::byte> bytes)
    : cut_(!bytes.empty() && bytes.size() < kLanes * kLaneBytes),
      rest_(bytes.subspan(std::min(bytes.size(), kLanes * kLaneBytes))),
      words_(rest_.size() / kWordBytes + 1) {
  // The state of an empty message, so that reading any bytes is defined; finish() reports malformed
  // ones.
  lanes_.fill(kLeast);
  for (std::size_t i = 0; i < kLanes && !bytes.empty(); ++i) {
    lanes_[i] = number_at(bytes, i * kLaneBytes, kLaneBytes);
  }
  for (std::size_t i = 0; i + 1 < words_.size(); ++i) {
    words_[i] = static_cast<std::uint16_t>(number_at(rest_, i * kWordBytes, kWordBytes));
  }
}

bool LaneReader::finish(std::size_t count, std::vector<std::byte>& plain) const {
  if (cut_) return false;
  const std::size_t after = count - std::min(count, kPlainInLanes);
  if (rest_.size() != at_ * kWordBytes + after) return false;
  plain.resize(std::max(count, kPlainInLanes));
  for (std::size_t i = 0; i < kLanes; ++i) {
    // A lane that is not back at its initial range has read symbols that were not written.
    if (lanes_[i] >> 24U != 1) return false;
    put_number(lanes_[i], kPlainOfLane, plain.data() + i * kPlainOfLane);
  }
  std::copy(rest_.end() - static_cast<std::ptrdiff_t>(after), rest_.end(),
            plain.begin() + kPlainInLanes);
  const bool zeros = std::all_of(plain.begin() + static_cast<std::ptrdiff_t>(count), plain.end(),
                                 [](std::byte byte) { return byte == std::byte{0}; });
  plain.resize(count);
  return zeros;
}

}  // namespace strait::coding
