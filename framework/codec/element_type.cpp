#include "framework/codec/element_type.h"

#include <fmt/format.h>

#include <stdexcept>

namespace strait::codec {

kernels::Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::Element::float32;
    case at::kBFloat16:
      return kernels::Element::bfloat16;
    case at::kHalf:
      return kernels::Element::float16;
    default:
      throw std::logic_error(fmt::format("a codec for elements of type {}", c10::toString(type)));
  }
}

at::ScalarType scalar_type(WireDtype dtype) {
  switch (dtype) {
    case WireDtype::bfloat16:
      return at::kBFloat16;
    case WireDtype::float16:
      return at::kHalf;
    case WireDtype::float32:
      break;
  }
  return at::kFloat;
}

}  // namespace strait::codec
