#pragma once

#include <any>
#include <memory>
#include <string>
#include <string_view>

#include "models/config_error.h"
#include "models/lora.h"

namespace strait::models {

// A model as its config.json describes it: a value, absent fields filled with the family's
// defaults.
struct ModelConfig {
  std::string family;  // a name of families()
  std::any values;     // of the family's own type, which only that family's functions read
  std::shared_ptr<const Lora> lora = nullptr;  // null: all parameters are trained
};

// Reads the text of a config.json; `file` is how errors call it. ConfigError: not JSON, an unknown
// model_type (the known ones are listed), a field of the wrong type or out of range (named). Fields
// that are not read are ignored, as the hub's files carry many.
ModelConfig parse_config(std::string_view text, const std::string& file);

}  // namespace strait::models
