#include "framework/store/safetensors_writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/safetensors_header.h"

namespace strait::store {
namespace {

Dtype dtype_to_write(const NamedTensor& named) {
  switch (named.tensor.scalar_type()) {
    case at::kDouble:
      return Dtype::f64;
    case at::kFloat:
      return Dtype::f32;
    case at::kHalf:
      return Dtype::f16;
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kLong:
      return Dtype::i64;
    case at::kInt:
      return Dtype::i32;
    case at::kShort:
      return Dtype::i16;
    case at::kChar:
      return Dtype::i8;
    case at::kByte:
      return Dtype::u8;
    case at::kBool:
      return Dtype::boolean;
    default:
      throw std::invalid_argument(
          fmt::format("tensor \"{}\" has an element type that safetensors "
                      "files do not know",
                      named.name));
  }
}

void check_names(const std::vector<const NamedTensor*>& tensors) {
  if (tensors.size() > SafetensorsHeader::kMaximumTensors) {
    throw std::invalid_argument(fmt::format("{} tensors for one file", tensors.size()));
  }
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const NamedTensor* named : tensors) names.emplace_back(named->name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw std::invalid_argument(fmt::format("tensor \"{}\" twice for one file", *twice));
  }
  for (const std::string_view name : names) {
    if (name.size() > SafetensorsHeader::kMaximumName || name == "__metadata__") {
      throw std::invalid_argument(fmt::format("a tensor cannot be called \"{}\"", name));
    }
  }
}

}  // namespace

FileSummary write_safetensors(const std::filesystem::path& path,
                              std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& named : tensors) order.push_back(&named);
  check_names(order);
  std::sort(order.begin(), order.end(), [](const NamedTensor* left, const NamedTensor* right) {
    const auto width = [](const NamedTensor* named) { return named->tensor.element_size(); };
    return width(left) != width(right) ? width(left) > width(right) : left->name < right->name;
  });

  SafetensorsHeader header;
  header.metadata = metadata;
  header.metadata["format"] = "pt";
  std::uint64_t end = 0;
  for (const NamedTensor* named : order) {
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(named->tensor.numel() * named->tensor.element_size());
    header.tensors.push_back(
        {named->name, dtype_to_write(*named), named->tensor.sizes().vec(), begin, end});
  }

  const std::string text = header.format();
  AtomicFile file(path, text.size() + end);
  file.write(std::as_bytes(std::span(text)));
  for (const NamedTensor* named : order) {
    const at::Tensor plain = named->tensor.detach().to(at::kCPU).contiguous();
    file.write({static_cast<const std::byte*>(plain.const_data_ptr()),
                static_cast<std::size_t>(plain.numel() * plain.element_size())});
  }
  return file.commit();
}

}  // namespace strait::store
