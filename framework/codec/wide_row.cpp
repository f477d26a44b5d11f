#include "framework/codec/wide_row.h"

#include <c10/util/Half.h>

#include <bit>
#include <cstring>

#include "kernels/row_quantization.h"

namespace strait::codec {
namespace {

constexpr std::size_t kWideBytes = 2;
// Without the sign bit, bfloat16 values compare like their bits.
constexpr std::uint16_t kMagnitude = 0x7FFF;
constexpr auto kHugeBits =
    static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(kernels::kHuge) >> 16);
constexpr std::uint16_t kNanBits = 0x7FC0;

// To nearest, ties to even. No branches, so that the compiler vectorises it.
std::uint16_t rounded_to_wide(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto rounded = static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  return value == value ? rounded : kNanBits;
}

template <typename Value>
void round_all(const void* from, std::size_t count, std::byte* to) {
  const auto* values = static_cast<const Value*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t wide = rounded_to_wide(static_cast<float>(values[i]));
    std::memcpy(to + i * kWideBytes, &wide, kWideBytes);
  }
}

}  // namespace

void WideRow::round(const kernels::Values& values) {
  const auto count = static_cast<std::size_t>(values.tokens * values.width);
  size_ = count * kWideBytes;
  if (memory_.size() < size_) memory_.resize(size_);
  switch (values.element) {
    case kernels::Element::float32:
      round_all<float>(values.data, count, memory_.data());
      break;
    case kernels::Element::float16:
      round_all<c10::Half>(values.data, count, memory_.data());
      break;
    case kernels::Element::bfloat16:
      if (size_ != 0) std::memcpy(memory_.data(), values.data, size_);
      break;
  }
}

void WideRow::copy(std::span<const std::byte> bytes) {
  size_ = bytes.size();
  if (memory_.size() < size_) memory_.resize(size_);
  if (size_ != 0) std::memcpy(memory_.data(), bytes.data(), size_);
}

void WideRow::write_to(std::byte* to) const {
  if (size_ != 0) std::memcpy(to, memory_.data(), size_);
}

bool WideRow::is_cacheable() const {
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
  kernels::load_entry(memory_.data(), out);
}

}  // namespace strait::codec
