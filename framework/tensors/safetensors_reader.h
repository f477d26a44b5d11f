#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/store/input_file.h"
#include "framework/store/safetensors_header.h"

namespace strait::tensors {

at::ScalarType scalar_type(store::Dtype dtype);

// A safetensors file that proved well-formed when it was opened. Reads only what is asked for, into
// memory of its own. Any number of threads may read at once. Errors name the file and the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<store::TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  const store::TensorInfo* find(const std::string& name) const;  // null: not in this file
  // store::StoreError: not in this file.
  const store::TensorInfo& info(const std::string& name) const;

  at::Tensor read(const std::string& name) const;  // contiguous, on the CPU, not shared

  at::Tensor read_row(const std::string& name, std::int64_t row) const;  // of a matrix

  // The whole file, mapped (see FileMapping), and where in it a tensor's bytes are.
  std::shared_ptr<const store::FileMapping> map() const { return file_.map(); }
  std::uint64_t offset(const store::TensorInfo& info) const { return data_ + info.begin; }

  // The same bytes into the caller's memory, which must have exactly that size.
  void read(const store::TensorInfo& info, std::span<std::byte> bytes) const;

 private:
  store::InputFile file_;
  store::SafetensorsHeader header_;
  std::uint64_t data_ = 0;  // where the data starts in the file
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace strait::tensors
