#include "launcher/hosts/build_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "launcher/base/build_id.h"
#include "launcher/process/piped_process.h"
#include "tests/scratch_directory.h"

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

// An installation that is killed must leave nothing here.
TEST(BuildFiles, StarterIsMadeInMemory) {
  const ScratchDirectory programs;
  ScratchDirectory::write(programs / "strait-stage",
                          fmt::format("#!/bin/sh\necho strait-stage {}\n", base::build_id()));
  std::filesystem::permissions(programs / "strait-stage", std::filesystem::perms::owner_all);
  const Build build = build_in(programs.path());
  const auto starter = std::ranges::find(build.files, "bin/strait-stage", &BuildFile::to);
  ASSERT_NE(starter, build.files.end());
  EXPECT_TRUE(starter->from.empty());
  EXPECT_EQ(starter->size, starter->content.size());
  ScratchDirectory::write(programs / "starter", starter->content);
  const auto sum = process::run_program({"sha256sum", (programs / "starter").string()},
                                        std::chrono::seconds(20));
  EXPECT_EQ(starter->hash, sum.out.substr(0, 64));
}

}  // namespace
}  // namespace strait::hosts
