#include "framework/codec/wide_row.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/apply_change.h"

namespace strait::codec {
namespace {

constexpr std::size_t kWideBytes = 2;
// Without its sign a bfloat16 orders as its bits do.
constexpr std::uint16_t kMagnitude = 0x7FFF;
constexpr auto kHugeBits =
    static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(kernels::kHuge) >> 16);

}  // namespace

std::span<const std::byte> WideRow::round(const kernels::Values& values) {
  size_ = static_cast<std::size_t>(values.tokens * values.width) * kWideBytes;
  if (memory_.size() < size_) memory_.resize(size_);
  kernels::store_entry({}, values, kernels::EntryKind::bfloat16, memory_.data());
  return {memory_.data(), size_};
}

std::span<const std::byte> WideRow::copy(std::span<const std::byte> bytes) {
  size_ = bytes.size();
  if (memory_.size() < size_) memory_.resize(size_);
  if (size_ != 0) std::memcpy(memory_.data(), bytes.data(), size_);
  return {memory_.data(), size_};
}

bool WideRow::fit_to_remember() const {
  std::uint16_t largest = 0;
  for (std::size_t i = 0; i < size_; i += kWideBytes) {
    std::uint16_t value = 0;
    std::memcpy(&value, memory_.data() + i, kWideBytes);
    value &= kMagnitude;
    if (value > largest) largest = value;
  }
  return largest < kHugeBits;
}

kernels::Values WideRow::values(std::int64_t tokens, std::int64_t width) const {
  return {memory_.data(), kernels::Element::bfloat16, tokens, width};
}

void WideRow::read_into(const kernels::MutableValues& out) const {
  kernels::load_entry({}, kernels::EntryKind::bfloat16, memory_.data(), out);
}

}  // namespace strait::codec
