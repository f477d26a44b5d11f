#include "kernels/row_quantization.h"

#include <c10/util/Exception.h>

#include "kernels/processors.h"

namespace strait::kernels {

void check_format(const GroupFormat& format) {
  TORCH_INTERNAL_ASSERT(format.bits >= 2 && format.bits <= 8, "quantising to ", format.bits,
                        " bits");
  TORCH_INTERNAL_ASSERT(format.group == 32 || format.group == 64 || format.group == 128,
                        "quantising in groups of ", format.group);
}

void check_row(const void* data, Element element, std::int64_t tokens, std::int64_t width) {
  // Unbiased rounding counts the values of a row in 32 bits.
  TORCH_INTERNAL_ASSERT(tokens >= 0 && width > 0 && tokens < (std::int64_t{1} << 32) / width,
                        "a row of ", tokens, " tokens, ", width, " wide");
  TORCH_INTERNAL_ASSERT(element <= Element::float16, "element type ", static_cast<int>(element));
  TORCH_INTERNAL_ASSERT(data != nullptr || tokens == 0, "a row without memory");
}

void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums) {
  check_format(format);
  check_row(values.data, values.element, values.tokens, values.width);
  if (values.tokens == 0) return;
  cpu::quantize(values, format, draw, out, sums);
}

void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out) {
  check_format(format);
  check_row(out.data, out.element, out.tokens, out.width);
  if (out.tokens == 0) return;
  cpu::dequantize(in, format, out);
}

void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                     std::byte* entry, std::byte* out, SquareSums* sums) {
  check_format(format);
  check_row(values.data, values.element, values.tokens, values.width);
  if (values.tokens == 0) return;
  cpu::quantize_change(values, format, draw, fresh, entry, out, sums);
}

void apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                  const MutableValues& out) {
  check_format(format);
  check_row(out.data, out.element, out.tokens, out.width);
  if (out.tokens == 0) return;
  cpu::apply_change(in, format, fresh, entry, out);
}

void store_entry(const Values& values, std::byte* entry) {
  check_row(values.data, values.element, values.tokens, values.width);
  if (values.tokens == 0) return;
  cpu::store_entry(values, entry);
}

void load_entry(const std::byte* entry, const MutableValues& out) {
  check_row(out.data, out.element, out.tokens, out.width);
  if (out.tokens == 0) return;
  cpu::load_entry(entry, out);
}

}  // namespace strait::kernels
