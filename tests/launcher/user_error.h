#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "launcher/base/errors.h"

namespace strait::base {

// The sentence of the UserError that the call throws, which must have this code. Empty: it threw
// nothing.
inline std::string user_error(ExitCode code, const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

}  // namespace strait::base
