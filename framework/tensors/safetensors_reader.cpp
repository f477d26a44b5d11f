#include "framework/tensors/safetensors_reader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

namespace strait::tensors {

at::ScalarType scalar_type(store::Dtype dtype) {
  switch (dtype) {
    case store::Dtype::f64:
      return at::kDouble;
    case store::Dtype::f32:
      return at::kFloat;
    case store::Dtype::f16:
      return at::kHalf;
    case store::Dtype::bf16:
      return at::kBFloat16;
    case store::Dtype::i64:
      return at::kLong;
    case store::Dtype::i32:
      return at::kInt;
    case store::Dtype::i16:
      return at::kShort;
    case store::Dtype::i8:
      return at::kChar;
    case store::Dtype::u8:
      return at::kByte;
    case store::Dtype::boolean:
      return at::kBool;
  }
  throw std::logic_error("a store::Dtype outside its enumeration");
}

at::Tensor SafetensorsReader::read(const std::string& name) const {
  const store::TensorInfo& found = info(name);
  at::Tensor tensor = at::empty(found.shape, at::TensorOptions(scalar_type(found.dtype)));
  read(found, {static_cast<std::byte*>(tensor.mutable_data_ptr()), found.bytes()});
  return tensor;
}

at::Tensor SafetensorsReader::read_row(const std::string& name, std::int64_t row) const {
  store::TensorInfo part = info(name);
  if (part.shape.size() != 2 || row < 0 || row >= part.shape[0]) {
    throw std::logic_error(fmt::format("row {} of {} is read, which has none", row, name));
  }
  const std::uint64_t bytes = part.bytes() / static_cast<std::uint64_t>(part.shape[0]);
  part.begin += static_cast<std::uint64_t>(row) * bytes;
  part.end = part.begin + bytes;
  part.shape[0] = 1;
  at::Tensor values = at::empty(part.shape, at::TensorOptions(scalar_type(part.dtype)));
  read(part, {static_cast<std::byte*>(values.mutable_data_ptr()), bytes});
  return values;
}

}  // namespace strait::tensors
