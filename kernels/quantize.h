#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// Values to a quantised row: values.tokens × token_bytes(format, width) at `out`. Same bits on
// every processor. Stateless; adds to `sums` (with change = value) where it is not null.
// Preconditions (checked): bits, group and sizes as GroupFormat says.
void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums);

}  // namespace strait::kernels
