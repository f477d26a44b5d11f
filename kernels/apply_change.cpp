#include "kernels/apply_change.h"

#include "kernels/processors.h"
#include "kernels/row_checks.h"

namespace strait::kernels {

void apply_change(const std::byte* in, const GroupFormat& format, CacheFormat kind, bool fresh,
                  std::byte* entry, const MutableValues& out) {
  check_format(format);
  check_row(out.data, out.element, out.tokens, out.width);
  if (out.tokens == 0) return;
  cpu::apply_change(in, format, kind, fresh, entry, out);
}

void store_entry(const Values& values, CacheFormat kind, std::byte* entry) {
  check_row(values.data, values.element, values.tokens, values.width);
  if (values.tokens == 0) return;
  cpu::store_entry(values, kind, entry);
}

void load_entry(CacheFormat kind, const std::byte* entry, const MutableValues& out) {
  check_row(out.data, out.element, out.tokens, out.width);
  if (out.tokens == 0) return;
  cpu::load_entry(kind, entry, out);
}

}  // namespace strait::kernels
