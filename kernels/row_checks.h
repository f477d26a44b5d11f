#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// The preconditions of all quantising operations: what breaks them is a mistake of the caller, and
// stops at once.
void check_format(const GroupFormat& format);
void check_row(const void* data, Element element, std::int64_t tokens, std::int64_t width);

}  // namespace strait::kernels
