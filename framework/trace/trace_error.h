#pragma once

#include <stdexcept>

namespace strait::trace {

// A file of measurements could not be opened, written or read. The text says which file and what
// the system answered.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait::trace
