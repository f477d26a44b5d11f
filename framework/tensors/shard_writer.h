#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "framework/store/manifest.h"
#include "framework/store/tensor_hashes.h"
#include "framework/tensors/safetensors_writer.h"

namespace strait::tensors {

// Writes one process's shard of a checkpoint that is not complete yet, durable under its name
// before it returns; store::commit_checkpoint() makes the checkpoint exist. StoreError busy when
// the checkpoint is already complete. `hashes`, if given, gets those of the tensors.
store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {});
store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& metadata = {},
                             store::TensorHashes* hashes = nullptr);
// Likewise, the hashes of all its shards.
store::ShardFile write_hashes(const std::filesystem::path& checkpoint, const std::string& name,
                              const store::TensorHashes& hashes);

}  // namespace strait::tensors
