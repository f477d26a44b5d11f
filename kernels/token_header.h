#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// Writes the part of a token before the planes, from its scale codes. Returns the top exponent.
int write_token_header(const std::uint16_t* scale_codes, const GroupFormat& format,
                       std::int64_t width, std::uint8_t* out);

// The number of refused groups of a token.
std::int64_t refused_groups(const std::uint8_t* token, std::int64_t groups);

bool is_turned(const std::uint8_t* token, const GroupFormat& format, std::int64_t groups,
               std::int64_t group);

// Writes NaN for refused groups.
template <class T>
void write_refusals(const std::uint8_t* token, const GroupFormat& format, std::int64_t width,
                    T* values);

}  // namespace strait::kernels
