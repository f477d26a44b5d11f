#pragma once

#include <stdexcept>

namespace strait::launcher {

// Names the message and the field. Whoever gets one talks to something that is not strait.
class ControlError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait::launcher
