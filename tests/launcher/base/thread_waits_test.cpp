#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "launcher/base/machine.h"

namespace strait::base {
namespace {

TEST(ThreadWaits, BoundsSpinsUnlessTheEnvironmentSetsThem) {
  constexpr std::array kVariables{"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
  const auto unset_all = [&] {
    for (const char* name : kVariables) ::unsetenv(name);
  };
  unset_all();
  EXPECT_TRUE(set_thread_waits());
  EXPECT_STREQ(std::getenv("GOMP_SPINCOUNT"), "3000");
  EXPECT_STREQ(std::getenv("KMP_BLOCKTIME"), "1");
  EXPECT_FALSE(set_thread_waits());
  for (const char* set : kVariables) {
    unset_all();
    ::setenv(set, "7", 1);
    EXPECT_FALSE(set_thread_waits());
    for (const char* name : kVariables) {
      EXPECT_STREQ(std::getenv(name), name == set ? "7" : nullptr) << name;
    }
  }
  unset_all();
}

}  // namespace
}  // namespace strait::base
