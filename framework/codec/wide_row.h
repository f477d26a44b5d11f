#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/group_format.h"

namespace strait::codec {

// A row on its way in bfloat16, in memory of its own: in a message it may lie at an odd address.
// Grows to the largest row and stays.
class WideRow {
 public:
  // Takes values, rounded, or the bytes of a message.
  void round(const kernels::Values& values);
  void copy(std::span<const std::byte> bytes);

  void write_to(std::byte* to) const;

  // No value of the current row is NaN, infinite or so large that the quantiser would refuse it.
  bool fit_to_remember() const;

  // The current row as values, and its values in another type.
  kernels::Values values(std::int64_t tokens, std::int64_t width) const;
  void read_into(const kernels::MutableValues& out) const;

 private:
  std::vector<std::byte> memory_;
  std::size_t size_ = 0;
};

}  // namespace strait::codec
