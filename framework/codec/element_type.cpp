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

}  // namespace strait::codec
