#include "framework/tensors/safetensors_reader.h"

#include <ATen/ATen.h>

#include "framework/store/store_error.h"

namespace strait::tensors {

at::ScalarType scalar_type(store::Dtype dtype) {
  switch (dtype) {
    case store::Dtype::f64:
      return at::kDouble;
    case store::Dtype::f32:
      return at::kFloat;
    case store::Dtype::f16:
      return at::kHalf;
    case store::Dtype::bf16:
      return at::kBFloat16;
    case store::Dtype::i64:
      return at::kLong;
    case store::Dtype::i32:
      return at::kInt;
    case store::Dtype::i16:
      return at::kShort;
    case store::Dtype::i8:
      return at::kChar;
    case store::Dtype::u8:
      return at::kByte;
    case store::Dtype::boolean:
      return at::kBool;
  }
  throw std::logic_error("a store::Dtype outside its enumeration");
}

at::Tensor SafetensorsReader::read(const std::string& name) const {
  const store::TensorInfo& found = info(name);
  at::Tensor tensor = at::empty(found.shape, at::TensorOptions(scalar_type(found.dtype)));
  read(found, {static_cast<std::byte*>(tensor.mutable_data_ptr()), found.bytes()});
  return tensor;
}

at::Tensor SafetensorsReader::read_rows(const std::string& name, std::int64_t first,
                                        std::int64_t count) const {
  store::TensorInfo part = info(name);
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < part.shape.size(); ++i) rows *= part.shape[i];
  if (part.shape.size() < 2 || first < 0 || count < 1 || count > rows - first) {
    throw std::logic_error(fmt::format("rows {} to {} of {} are read, which has {}", first,
                                       first + count, name, rows));
  }
  // Exact: the header's parser has compared the size with shape and type.
  const std::uint64_t bytes = part.bytes() / static_cast<std::uint64_t>(rows);
  part.begin += static_cast<std::uint64_t>(first) * bytes;
  part.end = part.begin + static_cast<std::uint64_t>(count) * bytes;
  part.shape = {count, part.shape.back()};
  at::Tensor values = at::empty(part.shape, at::TensorOptions(scalar_type(part.dtype)));
  read(part, {static_cast<std::byte*>(values.mutable_data_ptr()), part.bytes()});
  return values;
}

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
    throw store::StoreError(store::StoreError::Kind::mismatch,
                            "checkpoint {} has no tensor \"{}\"; it belongs to another model",
                            path_.string(), name);
  }
  return found->second->read(name);
}

const SafetensorsReader* CheckpointReader::shard(const std::string& name) const {
  const auto found = shards_.find(name);
  return found == shards_.end() ? nullptr : found->second.get();
}

}  // namespace strait::tensors
