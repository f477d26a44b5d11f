#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "launcher/base/own_program.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/host_inspection.h"
#include "tests/launcher/hosts/ssh_in_path.h"

namespace strait::hosts {
namespace {

using testing::HasSubstr;
using Kind = CheckResult::Kind;

constexpr std::int64_t kNow = 1'700'000'000;

HostInspection healthy() {
  HostInspection inspection;
  inspection.facts.cores = 8;
  inspection.facts.memory = 16'000'000'000;
  inspection.facts.free_disk = 50'000'000'000;
  inspection.facts.clock = kNow;
  inspection.facts.directory = "/srv/strait";
  return inspection;
}

std::vector<CheckResult> judged(const HostInspection& inspection, const HostNeed& need = {},
                                const recipe::RecipeHost& planned = {.name = "h0"}) {
  return diagnose_host(planned, need, inspection, {47000, 47009}, kNow);
}

TEST(Diagnostics, ListOfHostsIsNoAdviceForARunWithoutOne) {
  HostInspection inspection = healthy();
  inspection.facts.free_disk = 1'000'000;
  const HostNeed need{2, 1'000'000'000, 2'000'000'000, 3};
  EXPECT_THAT(judged(inspection, need).at(0).text, HasSubstr("[[hosts.list]]"));
  inspection.advice = kStartElsewhere;
  EXPECT_THAT(judged(inspection, need).at(0).text,
              testing::AllOf(HasSubstr("start strait in"), testing::Not(HasSubstr("hosts.list"))));
  const HostInspection here = inspect_this_host({.directory = "/proc/none"}, kStartElsewhere);
  EXPECT_THAT(here.objection,
              testing::AllOf(HasSubstr("start strait in"), testing::Not(HasSubstr("hosts.list"))));
}

TEST(Diagnostics, ReportsHealthyHostOnce) {
  const auto results = judged(healthy(), {2, 1'000'000'000, 2'000'000'000, 3});
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].kind, Kind::ok);
  EXPECT_THAT(results[0].text, HasSubstr("8 cores"));
}

TEST(Diagnostics, ReportsAllProblemsTogether) {
  HostInspection inspection = healthy();
  inspection.busy_ports = {47000, 47001, 47002, 47003, 47004, 47005, 47006, 47007};
  inspection.facts.clock = kNow - 3600;
  const auto results = judged(inspection, {2, 32'000'000'000, 60'000'000'000, 3});
  ASSERT_EQ(results.size(), 4U);
  EXPECT_EQ(results[0].code, base::ExitCode::out_of_memory);
  EXPECT_THAT(results[0].text, HasSubstr("2 processes need 32.00 GB of memory, but it has 16.00"));
  EXPECT_EQ(results[1].code, base::ExitCode::storage_full);
  EXPECT_THAT(results[1].text, HasSubstr("/srv/strait has 50.00 GB free"));
  EXPECT_EQ(results[2].code, base::ExitCode::bad_input);
  EXPECT_THAT(results[2].text, HasSubstr("only 2 are free, but 3 are needed"));
  EXPECT_EQ(results[3].kind, Kind::note);
  EXPECT_THAT(results[3].text, HasSubstr("60 minutes behind"));
}

TEST(Diagnostics, ReportsMoreThreadsThanCores) {
  HostNeed need{.processes = 1, .threads = 9};
  const auto results = judged(healthy(), need);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].code, base::ExitCode::bad_input);
  EXPECT_THAT(results[0].text, HasSubstr("pipeline.threads is 9, but it has 8 cores; set it to 8"));
  need.threads = 8;
  EXPECT_EQ(judged(healthy(), need).at(0).kind, Kind::ok);
}

TEST(Diagnostics, RecipeLimitOverridesMemoryOfHost) {
  const recipe::RecipeHost planned{.name = "h0", .memory = 1'000'000'000};
  const auto results = judged(healthy(), {1, 2'000'000'000, 0, 0}, planned);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_THAT(results[0].text, HasSubstr("the recipe lets it take 1.00 GB"));
}

TEST(Diagnostics, ReportsEachDeviceAndOneThatDoesNotWork) {
  HostInspection inspection = healthy();
  inspection.devices = {{true, "cpu: a product is right"}, {false, "cuda:0: a product is wrong"}};
  const auto results = judged(inspection, {2, 1'000'000'000, 2'000'000'000, 3});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].kind, Kind::ok);
  EXPECT_EQ(results[1].kind, Kind::wrong);
  EXPECT_THAT(results[1].text, HasSubstr("cuda:0"));
}

// The host "first" greets only once "second" has got its request.
constexpr const char* kSlowFirstHost = R"(
case "$*" in *"-- first "*) cat turn > /dev/null;; esac
cat greeting
head -c 5 > /dev/null
case "$*" in *"-- second "*) echo > turn;; esac
cat inspection
exec cat > /dev/null
)";

TEST(CheckHosts, InspectsAllHostsAtTheSameTime) {
  const SshInPath ssh(kSlowFirstHost);
  HostInspection inspection;
  inspection.facts.directory = "/srv/strait";
  ScratchDirectory::write(ssh / "greeting",
                          to_line(AgentGreeting{base::build_id(), "h", "", "", 0}));
  ScratchDirectory::write(ssh / "inspection", to_line(inspection));
  ASSERT_EQ(::mkfifo((ssh / "turn").c_str(), 0600), 0);
  recipe::Recipe asked;
  asked.hosts.backend = recipe::BackendKind::ssh;
  asked.hosts.address = "127.0.0.1";
  asked.hosts.list = {{.name = "first"}, {.name = "second"}};
  std::vector<std::string> well;
  for (const CheckResult& result : check_hosts(asked, {})) {
    EXPECT_NE(result.kind, Kind::wrong) << result.text;
    if (result.kind == Kind::ok) well.push_back(result.where);
  }
  EXPECT_THAT(well, testing::ElementsAre("first", "second"));
}

// Of an adapter's run a checkpoint has the adapter alone.
TEST(HostNeed, CountsOnDiskWhatCheckpointsHold) {
  plan::Plan plan;
  plan.recipe.checkpoint.keep = 3;
  for (const char* name : {"h0", "h1"}) plan.hosts.push_back({name});
  for (std::uint32_t stage : {0U, 1U}) {
    plan::Plan::Process& process = plan.processes.emplace_back();
    process.name = {stage, 0};
    process.host_index = stage;
    process.parameters = 1000;
    process.state_bytes = 4000;
    process.saved_bytes = 24 * (stage + 1);
  }
  const std::vector<HostNeed> needs = needs_of(plan);
  ASSERT_EQ(needs.size(), 2U);
  EXPECT_EQ(needs[0].processes, 1U);
  EXPECT_EQ(needs[0].disk, 4 * 24) << "one more than are kept";
  EXPECT_EQ(needs[1].disk, 4 * 48);
}

TEST(HostInspection, RoundTripsThroughLine) {
  HostInspection inspection = healthy();
  inspection.facts.addresses = {"10.0.0.1", "fd00::1"};
  inspection.busy_ports = {47001};
  inspection.devices = {{true, "cpu: a product is right"}, {false, "cuda:0: out of order"}};
  inspection.objection = "no room";
  inspection.objection_code = base::ExitCode::storage_full;
  const auto got = inspection_from("noise" + to_line(inspection));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->facts.memory, inspection.facts.memory);
  EXPECT_EQ(got->facts.addresses, inspection.facts.addresses);
  EXPECT_EQ(got->busy_ports, inspection.busy_ports);
  EXPECT_EQ(got->devices, inspection.devices);
  EXPECT_EQ(got->objection, inspection.objection);
  EXPECT_EQ(got->objection_code, inspection.objection_code);
  EXPECT_FALSE(inspection_from("strait-host-look {}"));
}

TEST(HostInspection, DistinguishesRequestFromJob) {
  const auto got = inspection_request_from(to_text(InspectionRequest{"~/x", {1, 2}}));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->directory, "~/x");
  EXPECT_EQ(got->ports, (std::pair{1, 2}));
  for (const char* other : {"", "{}", "[]", R"({"look": 1})", R"({"run": "x"})",
                            R"({"look": {"directory": "", "ports": [0, 1e30]}})"}) {
    EXPECT_FALSE(inspection_request_from(other)) << other;
  }
}

}  // namespace
}  // namespace strait::hosts
