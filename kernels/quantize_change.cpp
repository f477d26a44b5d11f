#include "kernels/quantize_change.h"

#include "kernels/processors.h"
#include "kernels/row_checks.h"

namespace strait::kernels {

void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw,
                     CacheFormat kind, bool fresh, std::byte* entry, std::byte* out,
                     SquareSums* sums) {
  check_format(format);
  check_row(values.data, values.element, values.tokens, values.width);
  if (values.tokens == 0) return;
  cpu::quantize_change(values, format, draw, kind, fresh, entry, out, sums);
}

}  // namespace strait::kernels
