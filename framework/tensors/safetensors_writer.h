#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "framework/store/file_hash.h"

namespace strait::tensors {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // any device and strides; copied one at a time if they are not plain
};

// Writes a safetensors file that is there whole and durable, or not at all (store::AtomicFile), and
// returns its size and hash. `metadata` is added to {"format": "pt"}. The bytes depend on the
// content only, not on the order of the tensors: wide element types first, then by name. A name
// twice, or an element type that the format lacks, is a broken invariant of the caller
// (std::invalid_argument).
store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata = {});

}  // namespace strait::tensors
