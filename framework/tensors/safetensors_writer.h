#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "framework/store/file_hash.h"
#include "framework/store/manifest.h"
#include "framework/store/tensor_hashes.h"

namespace strait::tensors {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // any device and strides; copied one at a time if not contiguous on the CPU
};

// A tensor that is computed when it is about to be written, so that a file may be larger than
// memory.
struct TensorSource {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
  std::function<at::Tensor()> read;  // returns a tensor of this type and shape
  // If set: called instead of read, from the first byte to the last, to fill `target`.
  std::function<void(std::uint64_t first, std::span<std::byte> target)> copy = {};
};

std::uint64_t bytes_of(const TensorSource& source);  // of its values

// Writes a safetensors file that is either complete and durable or does not exist
// (store::AtomicFile), and returns its size and hash. `metadata` is added to {"format": "pt"}. The
// bytes depend only on the content, not on the order of the tensors: wide element types come first,
// then names in order. A repeated name, or an element type that the format lacks, is a broken
// invariant of the caller (std::invalid_argument). `hashes`, if given, receives the hashes of the
// tensors.
store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata = {});
store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const TensorSource> tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     std::vector<store::TensorHash>* hashes = nullptr);

// Writes one process's shard of an incomplete checkpoint, durable under its name before the call
// returns. store::commit_checkpoint() then makes the checkpoint exist. StoreError busy: the
// checkpoint is already complete. `hashes`, if given, receives the hashes of the tensors.
store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {});
store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& metadata = {},
                             store::TensorHashes* hashes = nullptr);
// Writes the hashes of all its shards in the same way.
store::ShardFile write_hashes(const std::filesystem::path& checkpoint, const std::string& name,
                              const store::TensorHashes& hashes);

}  // namespace strait::tensors
