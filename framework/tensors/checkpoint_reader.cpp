#include "framework/tensors/checkpoint_reader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "framework/store/store_error.h"

namespace strait::tensors {

CheckpointReader::CheckpointReader(const std::filesystem::path& checkpoint, store::Verify verify,
                                   store::Part part)
    : path_(checkpoint), manifest_(store::open_checkpoint(checkpoint, verify, part)) {
  for (const store::ShardFile& file : store::files_of(manifest_, part)) {
    if (!file.name.ends_with(".safetensors")) continue;
    const auto [place, added] =
        shards_.emplace(file.name, std::make_unique<SafetensorsReader>(path_ / file.name));
    // The first shard that holds a name wins: emplace() does not overwrite.
    for (const store::TensorInfo& info : place->second->tensors()) {
      where_.emplace(info.name, place->second.get());
    }
  }
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : where_) names.push_back(name);
  return names;
}

const store::TensorInfo* CheckpointReader::find(const std::string& name) const {
  const auto found = where_.find(name);
  return found == where_.end() ? nullptr : found->second->find(name);
}

at::Tensor CheckpointReader::read(const std::string& name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    throw store::StoreError(
        store::StoreError::Kind::mismatch,
        fmt::format("checkpoint {} has no tensor \"{}\"; it belongs to another model",
                    path_.string(), name));
  }
  return found->second->read(name);
}

const SafetensorsReader* CheckpointReader::shard(const std::string& name) const {
  const auto found = shards_.find(name);
  return found == shards_.end() ? nullptr : found->second.get();
}

}  // namespace strait::tensors
