#include "kernels/dequantize.h"

#include "kernels/processors.h"
#include "kernels/row_checks.h"

namespace strait::kernels {

void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out) {
  check_format(format);
  check_row(out.data, out.element, out.tokens, out.width);
  if (out.tokens == 0) return;
  cpu::dequantize(in, format, out);
}

}  // namespace strait::kernels
