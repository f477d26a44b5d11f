#include "launcher/hosts/slurm_commands.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

using testing::ElementsAre;

// As squeue prints it with the words of job_state_format().
std::string line(const std::string& state, const std::string& reason, const std::string& nodes,
                 const std::string& elapsed, const std::string& limit,
                 const std::string& restarts) {
  return fmt::format("{:<20}{:<60}{:<400}{:<20}{:<20}{:<12}\n", state, reason, nodes, elapsed,
                     limit, restarts);
}

TEST(JobState, ParsesPendingJob) {
  const auto state = parse_job_state(line("PENDING", "Resources", "", "0:00", "2:00:00", "0"));
  ASSERT_TRUE(state);
  EXPECT_TRUE(state->is_pending());
  EXPECT_TRUE(state->is_active());
  EXPECT_EQ(state->sentence(), "pending (Resources)");
}

TEST(JobState, ParsesRunningJob) {
  const auto state = parse_job_state(line("RUNNING", "None", "n[0-1,7]", "3:21", "10:00", "1"));
  ASSERT_TRUE(state);
  EXPECT_FALSE(state->is_pending());
  EXPECT_TRUE(state->is_active());
  EXPECT_EQ(state->sentence(), "running on n[0-1,7] for 3:21 of 10:00, requeued once");
}

TEST(JobState, ParsesRequeuedJob) {
  const auto state = parse_job_state(line("PENDING", "BeginTime", "", "0:00", "1-00:00:00", "2"));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->sentence(), "pending (BeginTime), requeued 2 times");
}

TEST(JobState, ParsesEndedJob) {
  for (const char* word : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"}) {
    const auto state = parse_job_state(line(word, "None", "n0", "1:00", "10:00", "0"));
    ASSERT_TRUE(state) << word;
    EXPECT_FALSE(state->is_active()) << word;
  }
  const auto leaving = parse_job_state(line("COMPLETING", "None", "n0", "1:00", "10:00", "0"));
  EXPECT_TRUE(leaving->is_active());
  EXPECT_FALSE(parse_job_state(""));
  EXPECT_FALSE(parse_job_state("\n"));
}

TEST(JobState, RefusesInvalidSqueueOutput) {
  const std::string good = line("RUNNING", "None", "n0", "3:21", "10:00", "1");
  EXPECT_THROW(parse_job_state("running"), base::UserError);
  EXPECT_THROW(parse_job_state(good.substr(0, 300)), base::UserError);
  EXPECT_THROW(parse_job_state(line("RUNNING", "", "", "", "", "many")), base::UserError);
  EXPECT_THROW(parse_job_state(line("RUN/NING", "", "", "", "", "0")), base::UserError);
  // What sites call things must not act on a terminal.
  const auto state = parse_job_state(line("PENDING", "a\x1b[2J", "", "", "", "0"));
  EXPECT_EQ(state->sentence().find('\x1b'), std::string::npos);
}

TEST(JobState, ParsesJobNumber) {
  EXPECT_EQ(parse_job_number("123\n"), 123);
  EXPECT_EQ(parse_job_number("123;cluster\n"), 123);
  EXPECT_EQ(parse_job_number("Welcome to the cluster\n77\n"), 77);
  EXPECT_THROW(parse_job_number(""), base::UserError);
  EXPECT_THROW(parse_job_number("Submitted batch job 5"), base::UserError);
  EXPECT_THROW(parse_job_number("-5"), base::UserError);
}

TEST(JobState, ParsesNodeAddresses) {
  EXPECT_THAT(
      parse_node_addresses("NodeName=n0 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=a\n"
                           "NodeName=n1 NodeAddr=10.0.0.2 OS=Linux 6.1 #1 SMP State=IDLE\n"),
      ElementsAre(NodeAddress{"n0", "10.0.0.1"}, NodeAddress{"n1", "10.0.0.2"}));
  EXPECT_THROW(parse_node_addresses("Node n5 not found\n"), base::UserError);
}

}  // namespace
}  // namespace strait::hosts
