#include "framework/store/tensor_hashes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/fields/bounded_json.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

[[noreturn]] void refuse_hashes(const std::string& file, const std::string& why) {
  throw StoreError(StoreError::Kind::corrupt, fmt::format("{}: {}", file, why));
}

TensorHash parse_tensor(const nlohmann::json& entry, const std::string& file) {
  const bool fits = entry.is_array() && entry.size() == 4 && entry[0].is_string() &&
                    entry[1].is_number_unsigned() && entry[2].is_number_unsigned() &&
                    entry[3].is_string();
  if (!fits) refuse_hashes(file, "a tensor is not [name, begin, end, hash]");
  TensorHash tensor{entry[0].get<std::string>(), entry[1].get<std::uint64_t>(),
                    entry[2].get<std::uint64_t>(), entry[3].get<std::string>()};
  if (tensor.begin > tensor.end) {
    refuse_hashes(file, fmt::format("tensor \"{}\" ends before it begins", tensor.name));
  }
  return tensor;
}

}  // namespace

TensorHashes TensorHashes::parse(std::string_view text, const std::string& file) {
  nlohmann::json root;
  try {
    root = fields::parse_bounded_json(text, {.values = std::size_t{1} << 22U});
  } catch (const fields::JsonError& error) {
    refuse_hashes(file, error.what());
  }
  if (!root.is_object()) refuse_hashes(file, "it is not an object of files");
  TensorHashes hashes;
  for (const auto& [name, tensors] : root.items()) {
    if (!tensors.is_array()) refuse_hashes(file, fmt::format("\"{}\" is not a list", name));
    auto& list = hashes.files.emplace_back(name, std::vector<TensorHash>()).second;
    for (const nlohmann::json& entry : tensors) list.push_back(parse_tensor(entry, file));
  }
  return hashes;
}

std::string TensorHashes::format() const {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  for (const auto& [name, tensors] : files) {
    auto& list = root[name] = nlohmann::ordered_json::array();
    for (const TensorHash& tensor : tensors) {
      list.push_back({tensor.name, tensor.begin, tensor.end, tensor.hash});
    }
  }
  return root.dump() + "\n";
}

}  // namespace strait::store
