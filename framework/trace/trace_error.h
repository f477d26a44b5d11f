#pragma once

#include <stdexcept>

namespace strait::trace {

// A file of measurements could not be opened, written or read. The text names the file and the
// system's error.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait::trace
