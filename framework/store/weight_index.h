#pragma once

#include <map>
#include <string>
#include <string_view>

namespace strait::store {

// The file of each tensor, by name, relative to the directory of the index.
using WeightIndex = std::map<std::string, std::string>;

// Parses a Hugging Face model.safetensors.index.json; errors name `file`. StoreError bad_input: it
// has no map of tensors to files, or a file is outside of the directory. Pure.
WeightIndex parse_weight_index(std::string_view text, const std::string& file);

}  // namespace strait::store
