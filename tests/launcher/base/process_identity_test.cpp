#include "launcher/base/process_identity.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

namespace strait::base {
namespace {

TEST(SendSignal, SparesOtherProcessWithThePid) {
  ProcessIdentity former = ProcessIdentity::own();
  ++former.started;
  EXPECT_EQ(send_signal(former, SIGKILL), ESRCH);
  EXPECT_EQ(send_signal(ProcessIdentity{}, SIGKILL), ESRCH);
  EXPECT_EQ(send_signal(ProcessIdentity::own(), 0), 0);
}

}  // namespace
}  // namespace strait::base
