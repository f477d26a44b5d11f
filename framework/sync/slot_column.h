#pragma once

#include <array>
#include <string_view>

#include "framework/sync/float_codes.h"
#include "framework/sync/slots.h"

namespace strait::sync {

// One slot's values of any width, kGrain at a time, without a look-up of its name for each block.
// Blocks begin at grains.
class SlotColumn {
 public:
  // narrow: the slot is of bfloat16.
  SlotColumn(const Slots& slots, std::string_view name, bool narrow)
      : slots_(slots), name_(name), wide_(narrow ? nullptr : slots.values(name).data()) {}

  // kGrain values, valid until the next call; padding follows the end of a piece.
  const float* block(std::int64_t first) {
    if (wide_ != nullptr) return wide_ + first;
    slots_.load(name_, {first, first + kGrain}, loaded_);
    return loaded_.data();
  }
  // Fetches a block that block() will soon return into the cache.
  void prefetch(std::int64_t first) const {
    if (wide_ != nullptr) __builtin_prefetch(wide_ + first);
  }

 private:
  const Slots& slots_;
  std::string_view name_;
  const float* wide_;
  std::array<float, kGrain> loaded_{};
};

class SlotWriter {
 public:
  SlotWriter(Slots& slots, std::string_view name, bool narrow)
      : slots_(slots), name_(name), wide_(narrow ? nullptr : slots.values(name).data()) {}

  // The value as the slot stores it.
  float rounded(float value) const {
    return wide_ != nullptr ? value : from_bfloat16(to_bfloat16(value));
  }
  void store(std::int64_t first, const std::array<float, kGrain>& values) {
    if (wide_ == nullptr) return slots_.store(name_, {first, first + kGrain}, values);
    float* to = wide_ + first;
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i];
  }

 private:
  Slots& slots_;
  std::string_view name_;
  float* wide_;
};

}  // namespace strait::sync
