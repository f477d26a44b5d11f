#pragma once

#include <cstddef>
#include <span>

#include "framework/sync/layout.h"

namespace strait::sync {

// A range of a slot's values.
template <class Value>
std::span<Value> within(std::span<Value> values, Range range) {
  return values.subspan(static_cast<std::size_t>(range.first),
                        static_cast<std::size_t>(range.count()));
}

}  // namespace strait::sync
