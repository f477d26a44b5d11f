#include "launcher/hosts/agent_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

std::vector<AgentJob> jobs_of(std::uint32_t hosts) {
  std::vector<AgentJob> jobs(hosts);
  for (std::uint32_t i = 0; i < hosts; ++i) {
    AgentJob& job = jobs[i];
    job.run = net::RunId::random();
    job.host = i;
    job.host_name = fmt::format("n{}", i);
    job.keys = net::CurveKeyPair::generate();
    job.directory = "/a \"quoted\" path";
    job.environment = {{"A", "x\ny"}};
    job.endpoints = {{"agent", "tcp://h:1"}, {"ship", "tcp://h:2"}, {"reach", "tcp://h:3"}};
  }
  return jobs;
}

TEST(PackedJobs, UnpacksTheJobOfEachHost) {
  const std::vector<AgentJob> jobs = jobs_of(5);
  const std::string text = pack_jobs(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(to_text(unpack_job(text, i)), to_text(jobs[i])) << i;
  }
  EXPECT_THROW(unpack_job(text, 5), base::UserError);
}

TEST(PackedJobs, RefusesOtherText) {
  EXPECT_THROW(unpack_job("", 0), base::UserError);
  EXPECT_THROW(unpack_job("[1, 2]", 0), base::UserError);
  EXPECT_THROW(unpack_job("{\"jobs\": [{}]}", 0), base::UserError);
}

TEST(RunToken, NamesAMissingService) {
  AgentJob job = jobs_of(1).front();
  EXPECT_EQ(to_text(parse_agent_job(to_text(job))), to_text(job));
  job.endpoints.erase("ship");
  try {
    parse_agent_job(to_text(job));
    FAIL() << "a token without an endpoint of every service was taken";
  } catch (const base::UserError& error) {
    EXPECT_STREQ(error.what(),
                 "this is not a run token of this build: it has no endpoint of the service "
                 "\"ship\"");
  }
}

}  // namespace
}  // namespace strait::hosts
