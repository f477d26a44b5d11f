#pragma once

#include <stdexcept>

namespace strait::codec {

// A message from a peer that does not hold what its header says, or holds what no sender may write.
class CodecError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait::codec
