#include "framework/tensors/safetensors_writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/safetensors_header.h"

namespace strait::tensors {
namespace {

store::Dtype dtype_to_write(const NamedTensor& named) {
  switch (named.tensor.scalar_type()) {
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
      throw std::invalid_argument(
          fmt::format("tensor \"{}\" has an element type that safetensors "
                      "files do not know",
                      named.name));
  }
}

void check_names(const std::vector<const NamedTensor*>& tensors) {
  if (tensors.size() > store::SafetensorsHeader::kMaximumTensors) {
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
    if (name.size() > store::SafetensorsHeader::kMaximumName || name == "__metadata__") {
      throw std::invalid_argument(fmt::format("a tensor cannot be called \"{}\"", name));
    }
  }
}

}  // namespace

store::FileSummary write_safetensors(const std::filesystem::path& path,
                                     std::span<const NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& named : tensors) order.push_back(&named);
  check_names(order);
  std::sort(order.begin(), order.end(), [](const NamedTensor* left, const NamedTensor* right) {
    const auto width = [](const NamedTensor* named) { return named->tensor.element_size(); };
    return width(left) != width(right) ? width(left) > width(right) : left->name < right->name;
  });

  store::SafetensorsHeader header;
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
  store::AtomicFile file(path, text.size() + end);
  file.write(std::as_bytes(std::span(text)));
  for (const NamedTensor* named : order) {
    const at::Tensor plain = named->tensor.detach().to(at::kCPU).contiguous();
    file.write({static_cast<const std::byte*>(plain.const_data_ptr()),
                static_cast<std::size_t>(plain.numel() * plain.element_size())});
  }
  return file.commit();
}

}  // namespace strait::tensors
