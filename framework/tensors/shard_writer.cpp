#include "framework/tensors/shard_writer.h"

#include <fmt/format.h>

#include "framework/store/atomic_file.h"
#include "framework/store/committed.h"
#include "framework/store/store_error.h"

namespace strait::tensors {

namespace {

template <class Tensor>
store::ShardFile write_uncommitted(const std::filesystem::path& checkpoint, const std::string& name,
                                   std::span<const Tensor> tensors,
                                   const std::map<std::string, std::string>& metadata) {
  if (store::is_committed(checkpoint)) {
    throw store::StoreError(
        store::StoreError::Kind::busy,
        fmt::format("checkpoint {} is complete already; it is never written into",
                    checkpoint.string()));
  }
  store::make_directory(checkpoint);
  const store::FileSummary summary = write_safetensors(checkpoint / name, tensors, metadata);
  return {name, summary.size, summary.hash};
}

}  // namespace

store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  return write_uncommitted(checkpoint, name, tensors, metadata);
}

store::ShardFile write_shard(const std::filesystem::path& checkpoint, const std::string& name,
                             std::span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& metadata) {
  return write_uncommitted(checkpoint, name, tensors, metadata);
}

}  // namespace strait::tensors
