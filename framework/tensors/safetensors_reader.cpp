#include "framework/tensors/safetensors_reader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "framework/store/store_error.h"

namespace strait::tensors {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kLengthBytes = 8;

std::uint64_t header_length(const store::InputFile& file) {
  const std::string name = file.path().string();
  if (file.size() < kLengthBytes) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{} has {} bytes: too few for a safetensors file", name, file.size()));
  }
  std::array<std::byte, kLengthBytes> bytes{};
  file.read(0, bytes);
  const auto length = std::bit_cast<std::uint64_t>(bytes);
  if (length > store::SafetensorsHeader::kMaximumBytes) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{}: its header claims {} bytes, at most {} are allowed; is it a "
                    "safetensors file?",
                    name, length, store::SafetensorsHeader::kMaximumBytes));
  }
  if (length > file.size() - kLengthBytes) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{}: its header claims {} bytes, but only {} follow: the file is "
                    "cut short",
                    name, length, file.size() - kLengthBytes));
  }
  return length;
}

}  // namespace

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

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : file_(path) {
  const std::uint64_t length = header_length(file_);
  std::string text(length, '\0');
  file_.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  data_ = kLengthBytes + length;
  header_ = store::SafetensorsHeader::parse(text, file_.size() - data_, file_.path().string());
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const store::TensorInfo* SafetensorsReader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

const store::TensorInfo& SafetensorsReader::info(const std::string& name) const {
  const store::TensorInfo* found = find(name);
  if (found == nullptr) {
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            fmt::format("{}: it holds no tensor \"{}\"", path().string(), name));
  }
  return *found;
}

at::Tensor SafetensorsReader::read(const std::string& name) const {
  const store::TensorInfo& found = info(name);
  at::Tensor tensor = at::empty(found.shape, at::TensorOptions(scalar_type(found.dtype)));
  read(found, {static_cast<std::byte*>(tensor.mutable_data_ptr()), found.bytes()});
  return tensor;
}

at::Tensor SafetensorsReader::read_row(const std::string& name, std::int64_t row) const {
  store::TensorInfo part = info(name);
  if (part.shape.size() != 2 || row < 0 || row >= part.shape[0]) {
    throw std::logic_error(fmt::format("row {} of {} is read, which has none", row, name));
  }
  const std::uint64_t bytes = part.bytes() / static_cast<std::uint64_t>(part.shape[0]);
  part.begin += static_cast<std::uint64_t>(row) * bytes;
  part.end = part.begin + bytes;
  part.shape[0] = 1;
  at::Tensor values = at::empty(part.shape, at::TensorOptions(scalar_type(part.dtype)));
  read(part, {static_cast<std::byte*>(values.mutable_data_ptr()), bytes});
  return values;
}

void SafetensorsReader::read(const store::TensorInfo& info, std::span<std::byte> bytes) const {
  if (bytes.size() != info.bytes()) {
    throw std::logic_error(fmt::format("{} bytes of memory for {} bytes of {}", bytes.size(),
                                       info.bytes(), info.name));
  }
  file_.read(data_ + info.begin, bytes);
  // Any other byte in a bool is undefined behaviour in the code that computes with it.
  if (info.dtype == store::Dtype::boolean &&
      std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; })) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{}: tensor \"{}\" is BOOL but holds bytes other than 0 and 1", path().string(),
                    info.name));
  }
}

}  // namespace strait::tensors
