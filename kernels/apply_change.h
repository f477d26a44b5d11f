#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// The receiving side of quantize_change(): adds the change to the entry and writes what the entry
// then stands for to `out`, in one pass. Refused groups: NaN in `out`, entry as it was (zero when
// fresh); of an 8-bit entry the whole token stays, since its groups share an exponent.
void apply_change(const std::byte* in, const GroupFormat& format, CacheFormat kind, bool fresh,
                  std::byte* entry, const MutableValues& out);

// An entry and its values: how a row is stored in full, and read back. What is NaN, infinite or
// huge is stored as zero: no entry ever holds such a value.
void store_entry(const Values& values, CacheFormat kind, std::byte* entry);
void load_entry(CacheFormat kind, const std::byte* entry, const MutableValues& out);

}  // namespace strait::kernels
