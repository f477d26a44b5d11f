#include <gtest/gtest.h>

#include "launcher/hosts/host_install.h"

namespace strait::hosts {
namespace {

TEST(BuildFiles, HostGetsTheBuildOfItsKind) {
  Build cpu;
  cpu.files = {{"", "lib/libtorch_cpu.so", "", 0}};
  Build cuda = cpu;
  cuda.files.push_back({"", "lib/libtorch_cuda.so", "", 0});
  EXPECT_FALSE(cpu.has_cuda());
  EXPECT_TRUE(cuda.has_cuda());
  for (const bool gpu : {false, true}) {
    EXPECT_EQ(build_for_host({cpu, cuda}, gpu), gpu ? 1U : 0U);
    EXPECT_EQ(build_for_host({cuda, cpu}, gpu), gpu ? 0U : 1U);
    EXPECT_EQ(build_for_host({cpu}, gpu), 0U);
    EXPECT_EQ(build_for_host({cuda}, gpu), 0U) << "one with CUDA also runs on CPUs";
  }
}

TEST(BuildFiles, OtherKindIsBesideThisOne) {
  EXPECT_EQ(programs_of_other_kind("/s/build/release/bin", false), "/s/build/cuda/bin");
  EXPECT_EQ(programs_of_other_kind("/s/build/release/bin", true), "/s/build/cpu/bin");
}

}  // namespace
}  // namespace strait::hosts
