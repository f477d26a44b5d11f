// What the doctor says of links, from routes that were found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/compute/verbs.h"
#include "launcher/hosts/host_inspection.h"
#include "launcher/hosts/path_probe.h"

namespace strait::compute {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

const net::ProcessName kLower{0, 0};
const net::ProcessName kUpper{1, 0};

plan::Plan plan_of(std::vector<std::size_t> hosts_of_stages) {
  plan::Plan plan;
  plan.hosts = {{"a"}, {"b"}};
  for (const net::ProcessName& name : {kLower, kUpper}) {
    plan::Plan::Process process;
    process.name = name;
    process.host_index = hosts_of_stages.at(name.stage);
    plan.processes.push_back(process);
  }
  for (const char* name : {"boundary 0.0>1.0", "tie 0.0>1.0"}) {
    plan::Plan::Link link;
    link.name = name;
    link.listens = kLower;
    link.connects = kUpper;
    plan.links.push_back(link);
  }
  return plan;
}

auto says(hosts::CheckResult::Kind kind, const std::string& text) {
  return AllOf(Field(&hosts::CheckResult::kind, kind), Field(&hosts::CheckResult::where, "links"),
               Field(&hosts::CheckResult::text, text));
}

TEST(LinkCheckupTest, GroupsLinksWithEqualRoutes) {
  EXPECT_THAT(
      judge_links(plan_of({0, 1}),
                  {{"boundary 0.0>1.0", kLower, "10.0.0.1"}, {"tie 0.0>1.0", kLower, "10.0.0.1"}},
                  {}),
      ElementsAre(says(hosts::CheckResult::Kind::ok,
                       "b reaches a at 10.0.0.1: boundary 0.0>1.0, tie 0.0>1.0")));
}

TEST(LinkCheckupTest, NamesListeningHostAsReached) {
  EXPECT_THAT(
      judge_links(plan_of({0, 1}),
                  {{"boundary 0.0>1.0", kUpper, "10.0.0.2"}, {"tie 0.0>1.0", kLower, "10.0.0.1"}},
                  {}),
      ElementsAre(says(hosts::CheckResult::Kind::ok, "a reaches b at 10.0.0.2: boundary 0.0>1.0"),
                  says(hosts::CheckResult::Kind::ok, "b reaches a at 10.0.0.1: tie 0.0>1.0")));
}

TEST(LinkCheckupTest, ReportsRelayedLinksByNote) {
  EXPECT_THAT(judge_links(plan_of({0, 1}),
                          {{"boundary 0.0>1.0", kLower, "127.0.0.1", true},
                           {"tie 0.0>1.0", kLower, "127.0.0.1", true}},
                          {{"relayed", "RELAYED: a and b cannot reach each other"}}),
              ElementsAre(says(hosts::CheckResult::Kind::note,
                               "RELAYED: a and b cannot reach each other")));
}

TEST(LinkCheckupTest, IgnoresLinksWithinHost) {
  EXPECT_THAT(
      judge_links(plan_of({1, 1}),
                  {{"boundary 0.0>1.0", kLower, "127.0.0.1"}, {"tie 0.0>1.0", kLower, "127.0.0.1"}},
                  {}),
      IsEmpty());
}

}  // namespace
}  // namespace strait::compute
