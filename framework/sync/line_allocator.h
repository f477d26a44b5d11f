#pragma once

#include <cstddef>
#include <new>

namespace strait::sync {

// For vectors whose first value begins a cache line, as tensors of libtorch do. Blocks of kGrain
// values are then one line each, not two: for what looks at blocks here and there that is half the
// memory to wait for.
template <class Value>
struct LineAllocator {
  using value_type = Value;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class Other>
  explicit LineAllocator(const LineAllocator<Other>&) {}

  Value* allocate(std::size_t count) {
    return static_cast<Value*>(::operator new(count * sizeof(Value), kLine));
  }
  void deallocate(Value* values, std::size_t) { ::operator delete(values, kLine); }
  bool operator==(const LineAllocator&) const = default;
};

}  // namespace strait::sync
