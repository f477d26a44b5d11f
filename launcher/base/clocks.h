#pragma once

#include <chrono>
#include <cstdint>

namespace strait::base {

// A timeout for poll(2), rounded up; 0: the deadline has passed.
int milliseconds_until(std::chrono::steady_clock::time_point deadline);

// Seconds since 1970, by this host's clock. Shown to users and compared across hosts; no deadline
// depends on it.
std::int64_t unix_seconds();
double unix_time();  // with fractions

}  // namespace strait::base
