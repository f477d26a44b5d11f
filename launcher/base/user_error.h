#pragma once

#include <stdexcept>
#include <string>

#include "launcher/base/exit_code.h"

namespace strait::base {

// Something the user has to know or do: the sentence is all that is printed ("strait: …"), the code
// is how the program ends. what() says what, where, what was expected, and what to do.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& sentence)
      : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace strait::base
