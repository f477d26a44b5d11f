#include "launcher/console/sync_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strait::console {
namespace {

control::SyncStep step_of(const std::string& process) {
  return {process, 2, 1'000, 117'000, 0.5, 0.125};
}

TEST(SyncTable, SumsOverStepsByProcess) {
  SyncTotals totals;
  totals.add(std::vector{step_of("1.0"), step_of("0.1")});
  totals.add(std::vector{step_of("1.0")});
  const std::vector<control::SyncStep> all = totals.all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0], step_of("0.1"));
  EXPECT_EQ(all[1], (control::SyncStep{"1.0", 4, 2'000, 234'000, 1.0, 0.25}));
}

TEST(SyncTable, IsALineOfHeadsAndOneForEachProcess) {
  const control::SyncStep silent{"0.1", 0, 0, 0, 0, 0};
  const auto lines = sync_table(std::vector{step_of("0.0"), silent});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], testing::HasSubstr("bfloat16 all-reduce"));
  EXPECT_THAT(lines[1],
              testing::ContainsRegex("^0.0 +2 +1.0 kB +117.0 kB +117.0x +0.25 s +0.125 s$"));
  EXPECT_THAT(lines[2], testing::ContainsRegex("^0.1 +0 +0 B +0 B +1.0x +0 s +0 s$"));
  EXPECT_TRUE(sync_table({}).empty());
}

TEST(SyncStep, ComesBackFromItsJson) {
  const control::SyncStep step = step_of("0.0");
  EXPECT_EQ(control::sync_step_from(nlohmann::json::parse(to_json(step).dump())), step);
  EXPECT_THROW(control::sync_step_from(nlohmann::json{{"process", 3}}), nlohmann::json::exception);
}

}  // namespace
}  // namespace strait::console
