#include "launcher/hosts/allocation.h"

#include <gtest/gtest.h>

#include <map>

#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Allocation> allocation_of(const Variables& variables, std::int64_t pid = 4242) {
  return allocation_from(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::string() : found->second;
      },
      pid);
}

TEST(Allocation, ReadsJobOfBatchScript) {
  const auto allocation = allocation_of({{"SLURM_JOB_ID", "12"},
                                         {"SLURM_JOB_NODELIST", "n[0-1]"},
                                         {"SLURM_RESTART_COUNT", "3"},
                                         {"SLURM_TASK_PID", "4242"}});
  ASSERT_TRUE(allocation);
  EXPECT_EQ(allocation->job, 12);
  EXPECT_EQ(allocation->restarts, 3);
  EXPECT_EQ(allocation->nodes, "n[0-1]");
  EXPECT_TRUE(allocation->is_script);
}

TEST(Allocation, ReadsJobOfInteractiveShell) {
  const Variables shell = {{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n0"}};
  EXPECT_EQ(allocation_of(shell)->restarts, 0);
  EXPECT_FALSE(allocation_of(shell)->is_script);
  // A script that runs us as its child gets the signals itself.
  Variables child = shell;
  child["SLURM_TASK_PID"] = "4241";
  EXPECT_FALSE(allocation_of(child)->is_script);
}

TEST(Allocation, IsEmptyOutsideOfJob) { EXPECT_FALSE(allocation_of({{"SLURM_CONF", "/etc/x"}})); }

TEST(Allocation, RefusesInvalidVariables) {
  EXPECT_THROW(allocation_of({{"SLURM_JOB_ID", "12"}}), base::UserError);
  EXPECT_THROW(allocation_of({{"SLURM_JOB_ID", "x"}, {"SLURM_JOB_NODELIST", "n0"}}),
               base::UserError);
  EXPECT_THROW(allocation_of({{"SLURM_JOB_ID", "1 2"}, {"SLURM_JOB_NODELIST", "n0"}}),
               base::UserError);
}

}  // namespace
}  // namespace strait::hosts
