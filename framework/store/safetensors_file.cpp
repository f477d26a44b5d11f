#include "framework/store/safetensors_file.h"

#include <algorithm>
#include <array>
#include <bit>

#include "framework/store/store_error.h"

namespace strait::store {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kLengthBytes = 8;

std::uint64_t header_length(const InputFile& file) {
  const std::string name = file.path().string();
  if (file.size() < kLengthBytes) {
    throw StoreError(StoreError::Kind::bad_input, "{} has {} bytes: too few for a safetensors file",
                     name, file.size());
  }
  std::array<std::byte, kLengthBytes> bytes{};
  file.read(0, bytes);
  const auto length = std::bit_cast<std::uint64_t>(bytes);
  if (length > SafetensorsHeader::kMaximumBytes) {
    throw StoreError(
        StoreError::Kind::bad_input,
        "{}: its header claims {} bytes, at most {} are allowed; is it a safetensors file?", name,
        length, SafetensorsHeader::kMaximumBytes);
  }
  if (length > file.size() - kLengthBytes) {
    throw StoreError(StoreError::Kind::bad_input,
                     "{}: its header claims {} bytes, but only {} follow: the file is cut short",
                     name, length, file.size() - kLengthBytes);
  }
  return length;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::uint64_t length = header_length(file_);
  std::string text(length, '\0');
  file_.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  data_ = kLengthBytes + length;
  header_ = SafetensorsHeader::parse(text, file_.size() - data_, file_.path().string());
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const TensorInfo* found = find(name);
  if (found == nullptr) {
    throw StoreError(StoreError::Kind::bad_input, "{}: it has no tensor \"{}\"", path().string(),
                     name);
  }
  return *found;
}

void SafetensorsFile::read(const TensorInfo& info, std::span<std::byte> bytes) const {
  if (bytes.size() != info.bytes()) {
    throw std::logic_error(fmt::format("{} bytes of memory for {} bytes of {}", bytes.size(),
                                       info.bytes(), info.name));
  }
  file_.read(data_ + info.begin, bytes);
  // Any other byte in a bool is undefined behaviour in the code that computes with it.
  if (info.dtype == Dtype::boolean &&
      std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; })) {
    throw StoreError(StoreError::Kind::bad_input,
                     "{}: tensor \"{}\" is BOOL but holds bytes other than 0 and 1",
                     path().string(), info.name);
  }
}

}  // namespace strait::store
