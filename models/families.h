#pragma once

#include <any>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/catalogue.h"
#include "models/config_reader.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::models {

// How the values of a new tensor are drawn.
struct Initialization {
  double mean = 0;
  double deviation = 0;  // zero: all values are the mean
};

// Everything that is particular to a family of models. To add one, write these functions in a file
// of its own and list it in families(), or offer it in a plugin. Models have an embedding, blocks
// and a head, in this order; see LayerRange.
struct Family {
  std::string name;                              // model_type in config.json
  std::any (*read)(const ConfigReader& reader);  // ModelConfig::values
  ModelDescription (*describe)(const ModelConfig& config, const CostQuestion& question);
  std::unique_ptr<Model> (*make)(const ModelConfig& config, LayerRange range, at::ScalarType type,
                                 at::Device device);
  Initialization (*initialization)(const ModelConfig& config, const std::string& tensor);
  // The canonical name of a tensor in a file; nullopt: one to be ignored, because it is no weight.
  std::optional<std::string> (*canonical_name)(const std::string& name_in_file);
  // Of a tied projection: the name it has where it is stored as the head's own, and the tensor it
  // is tied to.
  std::string_view head_tensor;
  std::string_view embedding_tensor;
};

Catalogue<Family>& families();
const Family& family_of(const ModelConfig& config);

}  // namespace strait::models
