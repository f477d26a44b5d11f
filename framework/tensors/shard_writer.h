#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "framework/store/manifest.h"
#include "framework/store/tensor_hashes.h"
#include "framework/tensors/safetensors_writer.h"

namespace strait::tensors {

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
