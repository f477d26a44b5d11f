#include "launcher/process/thread_waits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace strait::process {
namespace {

TEST(ThreadWaits, SleepUnlessTheEnvironmentSaysOtherwise) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) ::unsetenv(name);
  EXPECT_TRUE(set_thread_waits());
  EXPECT_EQ(std::string(std::getenv("OMP_WAIT_POLICY")), "passive");
  EXPECT_FALSE(set_thread_waits());
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_FALSE(set_thread_waits());
  EXPECT_EQ(std::string(std::getenv("OMP_WAIT_POLICY")), "active");
  ::unsetenv("OMP_WAIT_POLICY");
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  EXPECT_FALSE(set_thread_waits());
  EXPECT_EQ(std::getenv("OMP_WAIT_POLICY"), nullptr);
  ::unsetenv("GOMP_SPINCOUNT");
}

}  // namespace
}  // namespace strait::process
