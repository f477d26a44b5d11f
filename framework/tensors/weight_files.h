#pragma once

#include "framework/store/safetensors_header.h"
#include "framework/tensors/safetensors_reader.h"

namespace strait::tensors {

// The tensors of a Hugging Face directory: model.safetensors, or the shards listed in
// model.safetensors.index.json. Opening reads all headers and no data. Any number of threads may
// read at once. The meaning of names is not known here.
class WeightFiles {
 public:
  struct Entry {
    store::TensorInfo info;
    std::filesystem::path file;
  };

  // store::StoreError bad_input: there are no such files (for pytorch_model.bin the message says
  // how to convert it), a listed shard or tensor is missing, a name is in two shards, or a path in
  // the index leaves the directory.
  explicit WeightFiles(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  const std::vector<Entry>& tensors() const { return tensors_; }  // sorted by name
  const Entry* find(const std::string& name) const;               // null: no such tensor
  at::Tensor read(const std::string& name) const;
  // Consecutive rows, all dimensions but the last counted as one: [count, width].
  at::Tensor read_rows(const std::string& name, std::int64_t first, std::int64_t count) const;

 private:
  const SafetensorsReader& shard_of(const std::string& name) const;
  void open_index(const std::filesystem::path& index);
  void open_shard(const std::filesystem::path& file);

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<SafetensorsReader>> shards_;
  std::map<std::string, const SafetensorsReader*> where_;
  std::vector<Entry> tensors_;
};

}  // namespace strait::tensors
