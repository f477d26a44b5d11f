#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/group_format.h"

namespace strait::codec {

// The payload of SampleEncoder, row by row; the page is MESSAGE.md.
inline constexpr std::uint8_t kSampleFormat = 1;  // first byte of the payload
inline constexpr int kWholeBits = 16;             // a row of bfloat16

enum class RowBase : std::uint8_t {
  none = 0,   // values, to be forgotten
  fresh = 1,  // values, to be remembered: a change from zero
  entry = 2,  // the change since the entry with `hash`
};

}  // namespace strait::codec
