#include "kernels/quantize.h"

#include "kernels/processors.h"
#include "kernels/row_checks.h"

namespace strait::kernels {

void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums) {
  check_format(format);
  check_row(values.data, values.element, values.tokens, values.width);
  if (values.tokens == 0) return;
  cpu::quantize(values, format, draw, out, sums);
}

}  // namespace strait::kernels
