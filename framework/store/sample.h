#pragma once

#include <cstdint>

namespace strait::store {

// The index of a packed training row. It means the same row for the whole run, in every process.
enum class SampleId : std::int64_t {};

// One optimizer update. Counts from 0; as an amount, the number of updates so far.
enum class Step : std::int64_t {};

constexpr std::int64_t number(SampleId sample) { return static_cast<std::int64_t>(sample); }
constexpr std::int64_t number(Step step) { return static_cast<std::int64_t>(step); }

}  // namespace strait::store
