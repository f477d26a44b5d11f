#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/catalogue.h"
#include "models/config_reader.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::models {

// How the values of a new tensor are drawn.
struct Initialization {
  double mean = 0;
  double deviation = 0;        // zero: all values are the mean
  std::int64_t zero_row = -1;  // of a table: this row is zero; -1: none
};

// How a family's files call its tensors, beside the names of Model::parameters().
struct FileNames {
  // Of a tied projection: the name it has where it is stored as the head's own, and the tensor it
  // is tied to.
  std::string head;
  std::string embedding;
  // Files of the model without its head lack `prefix` in front of these first parts.
  std::string prefix;
  std::vector<std::string> parts;
  std::vector<std::string> ignored;            // endings of tensors that are no weights
  std::map<std::string, std::string> aliases;  // the library's name of a tensor to ours
};

// The name in Model::parameters() of a tensor in a file; nullopt: one to be ignored.
std::optional<std::string> canonical_name(const FileNames& names, const std::string& in_file);

// Everything that is particular to a family of models. To add one, write these functions in a file
// of its own (decoder.h does most of it for decoders of the usual kind) and list it in families(),
// or offer it in a plugin. Models have an embedding, blocks and a head, in this order; see
// LayerRange.
struct Family {
  std::string name;                                          // model_type in config.json
  std::function<std::any(const ConfigReader& reader)> read;  // ModelConfig::values
  // Costs alone: describe() fills in tensors and parameters from what `make` makes.
  ModelDescription (*describe)(const ModelConfig& config, const CostQuestion& question) = nullptr;
  std::unique_ptr<Model> (*make)(const ModelConfig& config, LayerRange range, at::ScalarType type,
                                 at::Device device) = nullptr;
  Initialization (*initialization)(const ModelConfig& config, const std::string& tensor) = nullptr;
  FileNames names;
  bool input_first = false;  // matrices of the blocks are stored as [in, out]
};

// Those of this library, each in the file of its name.
Family gemma2_family();
Family gemma3_family();
Family gpt2_family();
Family gpt_neox_family();
Family gptj_family();
Family llama_family();
Family mistral_family();
Family opt_family();
Family phi3_family();
Family qwen2_family();
Family qwen3_family();

Catalogue<Family>& families();
const Family& family_of(const ModelConfig& config);

}  // namespace strait::models
