#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// Values to a quantised row: values.tokens × token_bytes(format, width) bytes at `out`. The same
// bits on every processor. Stateless; adds to `sums` (with change = value) if it is not null.
// Preconditions (checked): bits, group and sizes as in GroupFormat.
void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums);

// A quantised row to values: the inverse of quantize(), except for rounding. Any bytes are a valid
// input; refused groups become NaN. float16 saturates.
void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out);

// The change of a sample's activation since its entry was made, as a quantised row, in one pass:
// change → scale → round → pack → update of the entry. The entry is updated only from the written
// bytes, exactly like apply_change() on the other side, so both keep the same bits. `fresh`: there
// is no entry yet, so the change is from zero. A refused group leaves its part of the entry
// unchanged (zero if fresh). A huge value is refused even if its change is small.
void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                     std::byte* entry, std::byte* out, SquareSums* sums);

// The receiving side of quantize_change(): adds the change to the entry and writes the entry's new
// values to `out`, in one pass. Refused groups: NaN in `out`, and the entry is unchanged (zero if
// fresh).
void apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                  const MutableValues& out);

// Stores a row in full as an entry, and reads it back. NaN, infinite and huge values are stored as
// zero, so no entry ever contains them.
void store_entry(const Values& values, std::byte* entry);
void load_entry(const std::byte* entry, const MutableValues& out);

// Checks the preconditions of all quantising operations. A violation is a bug of the caller and
// stops at once.
void check_format(const GroupFormat& format);
void check_row(const void* data, Element element, std::int64_t tokens, std::int64_t width);

}  // namespace strait::kernels
