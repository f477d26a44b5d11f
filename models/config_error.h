#pragma once

#include "framework/error.h"

namespace strait::models {

// A config.json that does not describe a supported model. The message is one sentence for the user
// and names the file and the field.
class ConfigError : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace strait::models
