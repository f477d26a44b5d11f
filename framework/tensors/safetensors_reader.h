#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "framework/store/safetensors_file.h"

namespace strait::tensors {

at::ScalarType scalar_type(store::Dtype dtype);

// The tensors of a safetensors file. Each is contiguous, on the CPU and not shared.
class SafetensorsReader : public store::SafetensorsFile {
 public:
  using SafetensorsFile::read;
  using SafetensorsFile::SafetensorsFile;

  at::Tensor read(const std::string& name) const;
  // Consecutive rows, all dimensions but the last counted as one: [count, width].
  at::Tensor read_rows(const std::string& name, std::int64_t first, std::int64_t count) const;
};

}  // namespace strait::tensors
