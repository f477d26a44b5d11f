#pragma once

#include "framework/error.h"

namespace strait::codec {

// A message from a peer that does not hold what its header says, or holds what no sender may write.
class CodecError : public ProtocolError {
 public:
  using ProtocolError::ProtocolError;
};

}  // namespace strait::codec
