#pragma once

#include <span>
#include <vector>

#include "kernels/group_format.h"

namespace strait::codec {

// A row in bfloat16, copied into aligned memory, because it may start at an odd address in a
// message. The buffer grows to the largest row and is reused.
class WideRow {
 public:
  // Sets the row: from values, rounded to bfloat16, or from the bytes of a message.
  void round(const kernels::Values& values);
  void copy(std::span<const std::byte> bytes);

  void write_to(std::byte* to) const;

  // Whether the row may be cached: no value is NaN, infinite, or so large that the quantiser
  // refuses it.
  bool is_cacheable() const;

  // The current row as values, and its values in another type.
  kernels::Values values(std::int64_t tokens, std::int64_t width) const;
  void read_into(const kernels::MutableValues& out) const;

 private:
  std::vector<std::byte> memory_;
  std::size_t size_ = 0;
};

}  // namespace strait::codec
