#include "framework/tensors/shard_writer.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::tensors {

namespace {

// `write` gets the path of the file and returns its summary.
template <class Write>
store::ShardFile write_uncommitted(const std::filesystem::path& checkpoint, const std::string& name,
                                   const Write& write) {
  if (store::is_committed(checkpoint)) {
    throw store::StoreError(
        store::StoreError::Kind::busy,
        fmt::format("checkpoint {} is complete already; it is never written into",
                    checkpoint.string()));
  }
  // A run's directory that was moved away must not come back with nothing but this in it.
  const std::filesystem::path run = checkpoint.parent_path().parent_path();
  if (!run.empty() && !store::is_present(run)) {
    throw store::StoreError(
        store::StoreError::Kind::storage_io,
        fmt::format("{} is gone: it was moved or removed while the run used it", run.string()));
  }
  store::make_directory(checkpoint);
  const store::FileSummary summary = write(checkpoint / name);
  return {name, summary.size, summary.hash};
}

}  // namespace

store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  return write_uncommitted(checkpoint, name, [&](const std::filesystem::path& path) {
    return write_safetensors(path, tensors, metadata);
  });
}

store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& metadata,
                             store::TensorHashes* hashes) {
  std::vector<store::TensorHash> own;
  store::ShardFile file =
      write_uncommitted(checkpoint, name, [&](const std::filesystem::path& path) {
        return write_safetensors(path, tensors, metadata, hashes == nullptr ? nullptr : &own);
      });
  if (hashes != nullptr) hashes->files.emplace_back(name, std::move(own));
  return file;
}

store::ShardFile write_hashes(const std::filesystem::path& checkpoint, const std::string& name,
                              const store::TensorHashes& hashes) {
  return write_uncommitted(checkpoint, name, [&](const std::filesystem::path& path) {
    return store::replace_file(path, hashes.format());
  });
}

}  // namespace strait::tensors
