#pragma once

#include <ATen/core/Tensor.h>

#include "framework/store/checkpoint.h"
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

// The tensors of a complete checkpoint by their global names, independent of shards, so that any
// layout can resume from it. A name that several shards hold (replicas, tied weights) is read from
// the first of them in the manifest's order. Any number of threads may read at once.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& checkpoint,
                            store::Verify verify = store::Verify::hashes,
                            store::Part part = store::Part::all);

  const std::filesystem::path& path() const { return path_; }
  const store::Manifest& manifest() const { return manifest_; }
  std::vector<std::string> names() const;                        // sorted
  const store::TensorInfo* find(const std::string& name) const;  // null: in no shard
  at::Tensor read(const std::string& name) const;  // store::StoreError mismatch: in no shard

  // The shard of one process; null if the checkpoint has none of that name.
  const SafetensorsReader* shard(const std::string& name) const;

 private:
  std::filesystem::path path_;
  store::Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> shards_;
  std::map<std::string, const SafetensorsReader*> where_;
};

}  // namespace strait::tensors
