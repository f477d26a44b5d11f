#pragma once

#include <stdexcept>

namespace strait::models {

// A config.json that does not describe a model which we can build. The message is one sentence for
// the user and names the file and the field.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait::models
