#include "launcher/hosts/agent_job.h"

#include <gtest/gtest.h>

namespace strait::hosts {
namespace {

TEST(AgentJob, ReadsBackTheSame) {
  AgentJob job;
  job.run = net::RunId::random();
  job.host_name = "n0";
  job.keys = net::CurveKeyPair::generate();
  job.directory = "/a \"quoted\" path";
  job.environment = {{"A", "x\ny"}};
  job.endpoint = "tcp://h:1";
  EXPECT_EQ(to_text(parse_agent_job(to_text(job))), to_text(job));
}

}  // namespace
}  // namespace strait::hosts
