#include "kernels/row_checks.h"

#include <c10/util/Exception.h>

namespace strait::kernels {

void check_format(const GroupFormat& format) {
  TORCH_INTERNAL_ASSERT(format.bits >= 2 && format.bits <= 8, "quantising to ", format.bits,
                        " bits");
  TORCH_INTERNAL_ASSERT(format.group == 32 || format.group == 64 || format.group == 128,
                        "quantising in groups of ", format.group);
}

void check_row(const void* data, Element element, std::int64_t tokens, std::int64_t width) {
  // Stochastic rounding counts the values of a row in 32 bits.
  TORCH_INTERNAL_ASSERT(tokens >= 0 && width > 0 && tokens < (std::int64_t{1} << 32) / width,
                        "a row of ", tokens, " tokens, ", width, " wide");
  TORCH_INTERNAL_ASSERT(element <= Element::float16, "element type ", static_cast<int>(element));
  TORCH_INTERNAL_ASSERT(data != nullptr || tokens == 0, "a row without memory");
}

}  // namespace strait::kernels
