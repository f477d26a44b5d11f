#pragma once

#include <unordered_map>

#include "framework/store/input_file.h"
#include "framework/store/safetensors_header.h"

namespace strait::store {

// A safetensors file that was well-formed when it was opened. Reads only the requested tensors,
// into the caller's memory. Any number of threads may read at once. Errors name the file and the
// tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  const TensorInfo* find(const std::string& name) const;  // null: not in this file
  const TensorInfo& info(const std::string& name) const;  // StoreError: not in this file

  // `bytes` must have exactly the size of the tensor.
  void read(const TensorInfo& info, std::span<std::byte> bytes) const;

  // The whole file, mapped (see FileMapping), and the offset of a tensor in it.
  std::shared_ptr<const FileMapping> map() const { return file_.map(); }
  std::uint64_t offset(const TensorInfo& info) const { return data_ + info.begin; }

 private:
  InputFile file_;
  SafetensorsHeader header_;
  std::uint64_t data_ = 0;  // where the data starts in the file
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace strait::store
