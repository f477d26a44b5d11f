#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// Values to a quantised row: values.tokens × token_bytes(format, width) at `out`. Same bits on
// every processor. Stateless; adds to `sums` (with change = value) where it is not null.
// Preconditions (checked): bits, group and sizes as GroupFormat says.
void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums);

// A quantised row to values: the inverse of quantize() but for the rounding. Any bytes are a valid
// input; refused groups become NaN. float16 saturates.
void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out);

// What a sample's activation changed since its entry was made, as a quantised row, in one pass:
// change → scale → round → pack → update of the entry. The entry is updated from the bytes that
// were written and from nothing else, exactly as apply_change() does on the other side, so both
// stay the same bits. `fresh`: there is no entry yet; the change is counted from zero. A refused
// group leaves its part of the entry as it is (zero when fresh). A huge value is refused even where
// its change is small.
void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                     std::byte* entry, std::byte* out, SquareSums* sums);

// The receiving side of quantize_change(): adds the change to the entry and writes what the entry
// then stands for to `out`, in one pass. Refused groups: NaN in `out`, entry as it was (zero when
// fresh).
void apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                  const MutableValues& out);

// An entry and its values: how a row is stored in full, and read back. What is NaN, infinite or
// huge is stored as zero: no entry ever holds such a value.
void store_entry(const Values& values, std::byte* entry);
void load_entry(const std::byte* entry, const MutableValues& out);

// The preconditions of all quantising operations: what breaks them is a mistake of the caller, and
// stops at once.
void check_format(const GroupFormat& format);
void check_row(const void* data, Element element, std::int64_t tokens, std::int64_t width);

}  // namespace strait::kernels
