#include "framework/tensors/safetensors_writer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/file_progress.h"
#include "framework/store/safetensors_header.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::tensors {
namespace {

store::Dtype dtype_to_write(const TensorSource& named) {
  switch (named.type) {
    case at::kDouble:
      return store::Dtype::f64;
    case at::kFloat:
      return store::Dtype::f32;
    case at::kHalf:
      return store::Dtype::f16;
    case at::kBFloat16:
      return store::Dtype::bf16;
    case at::kLong:
      return store::Dtype::i64;
    case at::kInt:
      return store::Dtype::i32;
    case at::kShort:
      return store::Dtype::i16;
    case at::kChar:
      return store::Dtype::i8;
    case at::kByte:
      return store::Dtype::u8;
    case at::kBool:
      return store::Dtype::boolean;
    default:
      throw std::invalid_argument(fmt::format(
          "tensor \"{}\" has an element type that safetensors files do not know", named.name));
  }
}

void check_names(const std::vector<const TensorSource*>& tensors) {
  // The reader's limits: a file that this build could not read again must not be written.
  if (tensors.size() > store::SafetensorsHeader::kMaximumTensors) {
    throw std::invalid_argument(fmt::format("{} tensors for one file", tensors.size()));
  }
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorSource* named : tensors) names.emplace_back(named->name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw std::invalid_argument(fmt::format("tensor \"{}\" twice for one file", *twice));
  }
  for (const std::string_view name : names) {
    if (name.size() > store::SafetensorsHeader::kMaximumName || name == "__metadata__") {
      throw std::invalid_argument(fmt::format("a tensor cannot be called \"{}\"", name));
    }
  }
}

// A file, and the hash of the tensor that is written to it.
template <class File>
struct HashedFile {
  File& file;
  store::FileHash* hash;  // null: no hash is needed

  void write(std::span<const std::byte> bytes) const {
    if (hash != nullptr) hash->update(bytes);
    file.write(bytes);
  }
};

// A tensor larger than memory is copied in pieces.
void write_copied(const TensorSource& source, const auto& file) {
  const std::uint64_t size = bytes_of(source);
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, store::kFilePiece));
  for (std::uint64_t first = 0; first < size; first += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(size - first, piece.size()));
    source.copy(first, part);
    file.write(part);
  }
}

void write_read(const TensorSource& source, const auto& file) {
  const at::Tensor plain = source.read().detach().to(at::kCPU).contiguous();
  if (plain.scalar_type() != source.type || plain.sizes() != source.shape) {
    throw std::invalid_argument(fmt::format(
        "tensor \"{}\" is not of the type and shape it was announced with", source.name));
  }
  file.write({static_cast<const std::byte*>(plain.const_data_ptr()),
              static_cast<std::size_t>(plain.numel() * plain.element_size())});
}

// The order in the file: wide element types first, so that all are aligned, then by name.
std::vector<const TensorSource*> in_order(std::span<const TensorSource> tensors) {
  std::vector<const TensorSource*> order;
  for (const TensorSource& source : tensors) order.push_back(&source);
  check_names(order);
  std::sort(order.begin(), order.end(), [](const TensorSource* left, const TensorSource* right) {
    const std::size_t a = c10::elementSize(left->type);
    const std::size_t b = c10::elementSize(right->type);
    return a != b ? a > b : left->name < right->name;
  });
  return order;
}

store::SafetensorsHeader header_of(const std::vector<const TensorSource*>& order,
                                   const std::map<std::string, std::string>& metadata) {
  store::SafetensorsHeader header;
  header.metadata = metadata;
  // transformers refuses files without it.
  header.metadata["format"] = "pt";
  std::uint64_t end = 0;
  for (const TensorSource* source : order) {
    const std::uint64_t begin = end;
    end += bytes_of(*source);
    header.tensors.push_back({source->name, dtype_to_write(*source), source->shape, begin, end});
  }
  return header;
}

template <class File>
void write_all(File& file, const std::string& text, const std::vector<const TensorSource*>& order,
               const store::SafetensorsHeader& header, std::vector<store::TensorHash>* hashes) {
  file.write(std::as_bytes(std::span(text)));
  for (std::size_t i = 0; i < order.size(); ++i) {
    store::FileHash hash;
    const HashedFile<File> hashed{file, hashes == nullptr ? nullptr : &hash};
    if (order[i]->copy) {
      write_copied(*order[i], hashed);
    } else {
      write_read(*order[i], hashed);
    }
    if (hashes == nullptr) continue;
    const store::TensorInfo& info = header.tensors[i];
    // Positions in the file and not in its data: they are needed when the header is damaged.
    hashes->push_back({info.name, text.size() + info.begin, text.size() + info.end, hash.hex()});
  }
}

// `write` gets the path of the file and returns its summary.
template <class Write>
store::ShardFile write_uncommitted(const std::filesystem::path& checkpoint, const std::string& name,
                                   const Write& write) {
  if (store::is_committed(checkpoint)) {
    throw store::StoreError(store::StoreError::Kind::busy,
                            "checkpoint {} is complete already; it is never written into",
                            checkpoint.string());
  }
  // A run's directory that was moved away must not come back with nothing but this in it.
  const std::filesystem::path run = checkpoint.parent_path().parent_path();
  if (!run.empty() && !store::is_present(run)) {
    throw store::StoreError(store::StoreError::Kind::storage_io,
                            "{} is gone: it was moved or removed while the run used it",
                            run.string());
  }
  store::make_directory(checkpoint);
  const store::FileSummary summary = write(checkpoint / name);
  return {name, summary.size, summary.hash};
}

}  // namespace

std::uint64_t bytes_of(const TensorSource& source) {
  std::uint64_t bytes = c10::elementSize(source.type);
  for (const std::int64_t extent : source.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSource> sources;
  sources.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    sources.push_back({named.name, named.tensor.scalar_type(), named.tensor.sizes().vec(),
                       [tensor = named.tensor] { return tensor; }});
  }
  return write_safetensors(path, std::span<const TensorSource>(sources), metadata);
}

store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const TensorSource> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     std::vector<store::TensorHash>* hashes) {
  const std::vector<const TensorSource*> order = in_order(tensors);
  const store::SafetensorsHeader header = header_of(order, metadata);
  const std::string text = header.format();
  const std::uint64_t bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  // The size is known before the first byte, so that a full disk shows before the work.
  store::AtomicFile file(path, text.size() + bytes);
  write_all(file, text, order, header, hashes);
  return file.commit();
}

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
