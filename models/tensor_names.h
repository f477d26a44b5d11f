#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/error.h"
#include "models/lora.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::models {

// A file whose tensors are not those of the model. The message lists every missing, surplus and
// misshapen one.
class TensorMismatch : public InputError {
 public:
  using InputError::InputError;
};

// Which tensor of a file (all shards together) is which of the model: canonical name to name in the
// file. Knows the spellings that the hub's files have: missing prefixes, buffers that are no
// weights, and a tied projection that is there twice, once, or only as the head. `where` is how the
// error calls the file.
std::map<std::string, std::string> match_tensors(const ModelConfig& config,
                                                 const std::vector<TensorShape>& in_file,
                                                 const std::string& where);

// The names in the file of a tied model's table and of its projection, where both are stored; empty
// otherwise. match_tensors() takes the table.
struct StoredTwice {
  std::string table;
  std::string projection;
};
std::optional<StoredTwice> tied_stored_twice(const ModelConfig& config,
                                             const std::vector<TensorShape>& in_file);

// The same for the adapter_model.safetensors of PEFT: all trained tensors of a model with adapters.
std::map<std::string, std::string> match_adapter_tensors(const ModelConfig& config,
                                                         const std::vector<TensorShape>& in_file,
                                                         const std::string& where);

// The name of a trained tensor in PEFT's files.
std::string adapter_file_name(const ModelConfig& config, const std::string& tensor);

// The settings of the model's adapters for lora_text(): modules have the names that PEFT knows them
// by, and with `blocks` but no targets each adapted matrix becomes a target.
Lora lora_for_peft(const ModelConfig& config);

// The other way: settings from an adapter_config.json or a recipe, whose modules may have the names
// of either.
Lora with_own_names(const ModelConfig& config, Lora lora);

}  // namespace strait::models
