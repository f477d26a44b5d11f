#pragma once

#include <any>
#include <memory>

#include "models/config_error.h"
#include "models/lora.h"

namespace strait::models {

// A model as its config.json describes it, with absent fields set to the family's defaults. A
// value.
struct ModelConfig {
  std::string family;  // a name of families()
  std::any values;     // has the family's own type, which only the family's functions read
  std::shared_ptr<const Lora> lora = nullptr;  // null: all parameters are trained
};

// Parses the text of a config.json; `file` is its name in errors. ConfigError: not JSON, an unknown
// model_type (the known ones are listed), a field of the wrong type or out of range (named). Other
// fields are ignored, because files of the hub contain many.
ModelConfig parse_config(std::string_view text, const std::string& file);

}  // namespace strait::models
