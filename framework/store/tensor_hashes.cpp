#include "framework/store/tensor_hashes.h"

#include <iterator>

#include "framework/fields/json_fields.h"
#include "framework/store/store_error.h"

template <>
inline constexpr std::tuple strait::fields::kListForm<strait::store::TensorHash> = {
    &store::TensorHash::name, &store::TensorHash::begin, &store::TensorHash::end,
    &store::TensorHash::hash};

namespace strait::store {
namespace {

using ByFile = std::map<std::string, std::vector<TensorHash>>;
constexpr fields::JsonLimits kHashesLimits{.values = std::size_t{1} << 22U};

}  // namespace

TensorHashes TensorHashes::parse(std::string_view text, const std::string& file) {
  try {
    auto by_file = fields::from_text<ByFile>(text, file, kHashesLimits);
    for (const auto& [name, tensors] : by_file) {
      for (const TensorHash& tensor : tensors) {
        if (tensor.begin <= tensor.end) continue;
        throw fields::MessageError(
            fmt::format("{}: tensor \"{}\" ends before it begins", file, tensor.name));
      }
    }
    return {{std::move_iterator(by_file.begin()), std::move_iterator(by_file.end())}};
  } catch (const fields::MessageError& error) {
    throw StoreError(StoreError::Kind::corrupt, error.what());
  }
}

std::string TensorHashes::format() const {
  return fields::to_object(ByFile(files.begin(), files.end())).dump() + "\n";
}

}  // namespace strait::store
