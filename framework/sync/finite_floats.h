#pragma once

#include <span>
#include <vector>

#include "framework/sync/sync_method.h"

namespace strait::sync {

// As read_floats, and SyncError corrupt too where a value is infinite or no number: for what enters
// a reference that everybody shares and nobody looks at before it does.
void read_finite_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                        const char* what);

// Likewise, and keeps nothing.
void check_finite_floats(std::span<const std::byte> bytes, bool narrow, std::size_t count,
                         const char* what);

// The mean of what members told of `count` values, added up in their order.
std::vector<float> mean_of_finite_floats(Told told, bool narrow, std::size_t count,
                                         const char* what);

// What owners answered with float32 in the last exchange, into the round's ranges of a slot, over
// all of the stage's threads. It has been checked as it arrived.
void take_agreed_floats(const Round& round, Slots& slots, std::string_view slot, const char* what);

}  // namespace strait::sync
