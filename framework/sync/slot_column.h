#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "framework/sync/slots.h"

namespace strait::sync {

// One slot's values, a few at a time and without asking for its name each time, whatever its width.
class SlotColumn {
 public:
  // narrow: the slot is of bfloat16.
  SlotColumn(const Slots& slots, std::string_view name, bool narrow)
      : slots_(slots), name_(name), wide_(narrow ? std::span<const float>{} : slots.values(name)) {}

  void load(Range range, std::span<float> to) const {
    if (wide_.empty()) return slots_.load(name_, range, to);
    std::copy(wide_.begin() + range.first, wide_.begin() + range.last, to.begin());
  }

 private:
  const Slots& slots_;
  std::string_view name_;
  std::span<const float> wide_;
};

}  // namespace strait::sync
