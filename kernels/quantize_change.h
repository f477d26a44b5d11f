#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// What a sample's activation changed since its entry was made, as a quantised row, in one pass:
// change → scale → round → pack → update of the entry. The entry is updated from the bytes that
// were written and from nothing else, exactly as apply_change() does on the other side, so both
// stay the same bits. `fresh`: there is no entry yet; the change is counted from zero. A refused
// group leaves its part of the entry as it is (zero when fresh); of an 8-bit entry it leaves the
// whole token, since its groups share an exponent. A huge value is refused even where its change is
// small.
void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw,
                     CacheFormat kind, bool fresh, std::byte* entry, std::byte* out,
                     SquareSums* sums);

}  // namespace strait::kernels
