#include "launcher/hosts/agent_job.h"

#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

TEST(AgentJob, ReadsBackTheSame) {
  AgentJob job;
  job.run = net::RunId::random();
  job.host_name = "n0";
  job.keys = net::CurveKeyPair::generate();
  job.directory = "/a \"quoted\" path";
  job.environment = {{"A", "x\ny"}};
  job.endpoints = {{"agent", "tcp://h:1"}, {"ship", "tcp://h:2"}};
  EXPECT_EQ(to_text(parse_agent_job(to_text(job))), to_text(job));
}

TEST(AgentJob, NamesAMissingService) {
  AgentJob job;
  job.endpoints = {{"agent", "tcp://h:1"}};
  try {
    parse_agent_job(to_text(job));
    FAIL() << "a job without an endpoint of every service was taken";
  } catch (const base::UserError& error) {
    EXPECT_STREQ(error.what(),
                 "this is not the job of an agent of this build: it has no endpoint of the service "
                 "\"ship\"");
  }
}

}  // namespace
}  // namespace strait::hosts
