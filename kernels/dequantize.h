#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// A quantised row to values: the inverse of quantize() but for the rounding. Any bytes are a valid
// input; refused groups become NaN. float16 saturates.
void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out);

}  // namespace strait::kernels
