#pragma once

#include <map>
#include <string>
#include <string_view>

namespace strait::store {

// Name of a tensor to the file that holds it, relative to the directory of the index.
using WeightIndex = std::map<std::string, std::string>;

// The text of a Hugging Face model.safetensors.index.json; `file` is named in errors. StoreError
// bad_input: it has no map of tensors to files, or one of them is outside of the directory. Pure.
WeightIndex parse_weight_index(std::string_view text, const std::string& file);

}  // namespace strait::store
