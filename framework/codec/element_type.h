#pragma once

#include <ATen/core/Tensor.h>

#include "framework/codec/settings.h"
#include "kernels/group_format.h"

namespace strait::codec {

// The kernels' enumerator for a tensor's element type. Any other type than the three is a broken
// invariant.
kernels::Element element_of(at::ScalarType type);

// The tensor type of messages of the raw codec.
at::ScalarType scalar_type(WireDtype dtype);

}  // namespace strait::codec
