
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/host_install.h"
#include "launcher/hosts/ssh_session.h"
#include "tests/scratch_directory.h"

namespace strait::hosts {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string why(int code, const std::string& errors) {
  return ssh_failure("h0", "", base::ExitStatus{code, {}, {}}, errors).what();
}

TEST(SshOptions, HostFollowsOptions) {
  const auto argv = ssh_argv("alice@h0", "hosts.config", kAgentCommand, kCallSilence);
  EXPECT_EQ(argv.front(), "ssh");
  ASSERT_GE(argv.size(), 5U);
  EXPECT_THAT((std::vector(argv.end() - 5, argv.end())),
              ElementsAre("-F", "hosts.config", "--", "alice@h0", kAgentCommand));
  EXPECT_THAT(argv, testing::Contains("BatchMode=yes"));
  EXPECT_THAT(argv, testing::Contains("StrictHostKeyChecking=yes"));
  EXPECT_THAT(argv, testing::Contains("RemoteCommand=none"));  // ssh takes no second command
}

TEST(SshOptions, DistinguishesSshErrorsFromRemoteErrors) {
  // 255 is ssh's own; the same words behind another code come from the host's shell.
  EXPECT_THAT(why(255, "root@h0: Permission denied (publickey)."), HasSubstr("refuses the login"));
  EXPECT_THAT(why(126, "sh: strait-stage: Permission denied"), HasSubstr("has no strait"));
}

TEST(SshOptions, ReportsOlderGlibc) {
  const std::string errors =
      "strait-stage: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by "
      "strait-stage)\n";
  EXPECT_THAT(why(1, errors), AllOf(HasSubstr("h0 runs an older system"), HasSubstr("GLIBC_2.38")));
}

TEST(SshOptions, QuotesUnknownErrorsWithoutControlCharacters) {
  EXPECT_THAT(
      why(255, "first\r\nodd \x1b[31mthing\r\n"),
      AllOf(HasSubstr("odd [31mthing"), HasSubstr("ssh h0"), testing::Not(HasSubstr("\x1b"))));
}

TEST(Greetings, AreFoundAfterOtherOutput) {
  const AgentGreeting sent{"0.1.0-abc", "node7", "10.0.0.1", "10.0.0.7", 1700};
  const auto got = greeting_from("Last login: today" + to_line(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->build, sent.build);
  EXPECT_EQ(got->caller, sent.caller);
  EXPECT_EQ(got->clock, sent.clock);
  EXPECT_FALSE(greeting_from("Last login: today"));
  EXPECT_FALSE(greeting_from("strait-agent-here {\"build\": 7}"));
  EXPECT_FALSE(greeting_from("strait-agent-here {\"build\""));
  const auto other = greeting_from(R"(strait-agent-here {"build": "x", "clock": 1e300})");
  EXPECT_TRUE(other && other->build == "x" && other->clock == 0) << "fields of another build";
  EXPECT_FALSE(answer_from(R"(strait-agent-says {"pid": 1e300, "code": 0, "error": ""})"));
  EXPECT_FALSE(answer_from(to_line(sent)));
}

// strait ends with the code that an agent gives as the reason of its failure.
TEST(Greetings, FailuresHaveCodesOfFailures) {
  const auto code_of = [](int code, const char* error) {
    return answer_from(to_line(AgentAnswer{1, code, error}))->code;
  };
  EXPECT_EQ(code_of(11, "another build"), 11);
  EXPECT_EQ(code_of(0, "failed"), 70);
  EXPECT_EQ(code_of(999, "failed"), 70);
  EXPECT_EQ(code_of(0, ""), 0);
}

TEST(Greetings, ToleratesClockOffsetOfFiveMinutes) {
  EXPECT_EQ(clock_warning("h0", 1000, 1300), "");
  EXPECT_THAT(clock_warning("h0", 1000, 1420), HasSubstr("h0 is 7 minutes behind"));
  EXPECT_THAT(clock_warning("h0", 20000, 1000), HasSubstr("h0 is 5 hours ahead of"));
  EXPECT_THAT(clock_warning("h0", std::numeric_limits<std::int64_t>::min(), 1000),
              HasSubstr("behind"));
}

TEST(Addresses, AcceptsOnlyOwnAddresses) {
  EXPECT_EQ(address_seen_by("h0", "10.0.0.1", {"10.0.0.1", "fd00::1"}), "10.0.0.1");
  EXPECT_EQ(address_seen_by("h0", "::ffff:10.0.0.1", {"10.0.0.1"}), "10.0.0.1");
  EXPECT_EQ(address_seen_by("h0", "::1", {}), "::1");
  for (const char* seen : {"192.0.2.1", "", "fd00::2"}) {
    EXPECT_THROW(address_seen_by("h0", seen, {"10.0.0.1", "fd00::1"}), base::UserError) << seen;
  }
}

TEST(BuildFiles, ListsLoadedLibraries) {
  const std::string trace =
      "\tlinux-vdso.so.1 (0x00007ffc)\n"
      "\tlibzmq.so.5 => /lib/x86_64-linux-gnu/libzmq.so.5 (0x00007f31)\n"
      "\tlibodd.so => not found\n"
      "\t/lib64/ld-linux-x86-64.so.2 (0x00007f31)\n";
  EXPECT_THAT(
      loaded_libraries(trace),
      ElementsAre(Pair("libzmq.so.5", "/lib/x86_64-linux-gnu/libzmq.so.5"), Pair("libodd.so", "")));
  for (const char* own : {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1"}) {
    EXPECT_TRUE(is_systems_own(own)) << own;
  }
  for (const char* ours : {"libc10.so", "libcudart.so.12", "libstdc++.so.6", "libmd.so.0"}) {
    EXPECT_FALSE(is_systems_own(ours)) << ours;
  }
}

TEST(BuildFiles, IncludesLibrariesThatCudaLoadsLater) {
  const ScratchDirectory folder;
  const auto lib = folder / "nvidia/cudnn/lib";
  std::filesystem::create_directories(lib);
  for (const char* name : {"libcudnn.so.9", "libcudnn_ops.so.9", "README"}) {
    ScratchDirectory::write(lib / name, "");
  }
  EXPECT_THAT(loaded_on_demand(lib / "libcudnn.so.9"), ElementsAre(lib / "libcudnn_ops.so.9"));
  EXPECT_TRUE(loaded_on_demand(folder / "libother.so").empty());
}

}  // namespace
}  // namespace strait::hosts
