#include <fmt/format.h>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/committed.h"
#include "framework/store/store_error.h"

// A file of its own: of all that happens to checkpoints only this touches tensors, and programs
// that only move checkpoints about need no libtorch.
namespace strait::store {

ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                      std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& metadata) {
  if (is_committed(checkpoint)) {
    throw StoreError(StoreError::Kind::busy,
                     fmt::format("checkpoint {} is complete already; it is never written into",
                                 checkpoint.string()));
  }
  make_directory(checkpoint);
  const FileSummary summary = write_safetensors(checkpoint / name, tensors, metadata);
  return {name, summary.size, summary.hash};
}

}  // namespace strait::store
