#pragma once

#include <span>

namespace strait::sync {

// As read_floats, and SyncError corrupt too where a value is infinite or no number: for what enters
// a reference that everybody shares and nobody looks at before it does.
void read_finite_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                        const char* what);

}  // namespace strait::sync
