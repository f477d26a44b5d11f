#pragma once

#include "framework/error.h"

namespace strait::base {

// Names the message and the field. Whoever gets one talks to something that is not strait.
class ControlError : public ProtocolError {
 public:
  using ProtocolError::ProtocolError;
};

}  // namespace strait::base
