#include "launcher/hosts/host_install.h"

#include <gtest/gtest.h>

#include "launcher/base/own_program.h"
#include "launcher/base/piped_process.h"
#include "launcher/hosts/agent_job.h"
#include "tests/launcher/hosts/ssh_in_path.h"

namespace strait::hosts {
namespace {

// A host that is a folder of this machine.
constexpr const char* kHomeHere = R"(
for command; do :; done
export HOME="$PWD/home"
exec sh -c "$command"
)";

// Installs a build with a program that runs this script for --check.
Installed install(const SshInPath& ssh, const std::string& check) {
  std::filesystem::create_directory(ssh / "home");
  ScratchDirectory::write(ssh / "home/greeting",
                          to_line(AgentGreeting{base::build_id(), "h", "", "", 0}));
  const auto program = ssh / "strait-stage";
  ScratchDirectory::write(program, fmt::format(R"(#!/bin/sh
case "$1" in
--check) {};;
*) cat "$HOME/greeting"; exec cat > /dev/null;;
esac
)",
                                               check));
  ScratchDirectory::write(ssh / "abc", "abc");
  const auto sum = base::run_program({"sha256sum", program.string()}, std::chrono::seconds(20));
  Build build;
  // The second hash is that of "abc".
  build.files = {
      {program, "libexec/strait-stage", sum.out.substr(0, 64), std::filesystem::file_size(program)},
      {ssh / "abc", "lib/abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
       3}};
  return install_on_host({"h", ""}, {build}, [](auto, auto) {});
}

const std::string kRightAnswer = fmt::format("echo strait-stage {}", base::build_id());

// Other hosts with the same home remove files that no build links yet.
TEST(HostInstall, HoldsALockUntilItsBuildIsInPlace) {
  if (base::run_program({"sh", "-c", "command -v flock"}, std::chrono::seconds(20)).out.empty()) {
    GTEST_SKIP() << "there is no flock here";
  }
  const SshInPath ssh(kHomeHere);
  const auto installed = install(
      ssh, fmt::format("if flock -n \"$HOME/.strait/install-lock\" true; then echo unlocked; "
                       "else {}; fi",
                       kRightAnswer));
  EXPECT_EQ(installed.sent, installed.all);
  EXPECT_TRUE(std::filesystem::exists(ssh / "home/.strait/bin/strait-stage"));
  EXPECT_EQ(ScratchDirectory::read(ssh / "home/.strait/bin/../lib/abc"), "abc");
}

// Another host is in the middle of it: nothing is touched before that has ended.
TEST(HostInstall, WaitsForAnotherInstallationIntoTheSameHome) {
  const SshInPath ssh(kHomeHere);
  const std::filesystem::path held = ssh / "held";
  ssh.add_program("flock", fmt::format("if [ -e {0}.2 ]; then exit 0; fi; "
                                       "if [ -e {0} ]; then touch {0}.2; else touch {0}; fi; "
                                       "ls $HOME/.strait/content > {0}.content; exit 1\n",
                                       held.string()));
  EXPECT_GT(install(ssh, kRightAnswer).sent, 0U);
  EXPECT_TRUE(std::filesystem::exists(held.string() + ".2"));
  EXPECT_EQ(std::filesystem::file_size(held.string() + ".content"), 0U);
}

TEST(HostInstall, WorksWithoutFlock) {
  const SshInPath ssh(kHomeHere);
  ssh.add_program("flock", "exit 127\n");
  EXPECT_GT(install(ssh, kRightAnswer).sent, 0U);
}

}  // namespace
}  // namespace strait::hosts
