#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/store/file_hash.h"
#include "framework/store/memory_file.h"
#include "framework/store/tensor_hashes.h"

namespace strait::tensors {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // any device and strides; copied one at a time if they are not plain
};

// A tensor that is made when its turn to be written comes, so that a file larger than memory can be
// written.
struct TensorSource {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
  std::function<at::Tensor()> read;  // of this type and shape
  // Set: called instead of read, from its first byte to its last, to fill `target`.
  std::function<void(std::uint64_t first, std::span<std::byte> target)> copy = {};
};

std::uint64_t bytes_of(const TensorSource& source);  // of its values

// Writes a safetensors file that is there whole and durable, or not at all (store::AtomicFile), and
// returns its size and hash. `metadata` is added to {"format": "pt"}. The bytes depend on the
// content only, not on the order of the tensors: wide element types first, then by name. A name
// twice, or an element type that the format lacks, is a broken invariant of the caller
// (std::invalid_argument). `hashes`, if given, gets those of the tensors.
store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata = {});
store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const TensorSource> tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     std::vector<store::TensorHash>* hashes = nullptr);
// The same bytes into a file in memory, which is sealed then.
store::FileSummary write_safetensors(store::MemoryFile& file, std::span<const TensorSource> tensors,
                                     std::vector<store::TensorHash>* hashes = nullptr);

}  // namespace strait::tensors
