#include "launcher/console/boundary_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strait::console {
namespace {

control::BoundaryStep step_of(const std::string& boundary, const std::string& direction) {
  control::BoundaryStep step;
  step.boundary = boundary;
  step.direction = direction;
  step.raw_bytes = 8'000'000;
  step.sent_bytes = 1'000'000;
  step.change = 0.125;
  step.error = 0.0123;
  step.cache_bytes = 4'000'000;
  step.hits = 12;
  step.first_visits = 4;
  step.evictions = 3;
  step.resends = 1;
  return step;
}

TEST(BoundaryTable, SumsOverStepsAndKeepsTheLatestOfWhatIsNoSum) {
  BoundaryTotals totals;
  totals.add(std::vector{step_of("1.0>2.0", "forward"), step_of("1.0>2.0", "backward")});
  control::BoundaryStep later = step_of("1.0>2.0", "forward");
  later.change = std::nullopt;
  later.error = 0.5;
  later.cache_bytes = 5;
  totals.add(std::vector{later, step_of("0.0>1.0", "forward")});
  const std::vector<control::BoundaryStep> all = totals.all();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].boundary, "0.0>1.0");
  EXPECT_EQ(all[1].boundary, "1.0>2.0");
  EXPECT_EQ(all[2].direction, "backward");
  EXPECT_EQ(all[1].sent_bytes, 2'000'000U);
  EXPECT_EQ(all[1].raw_bytes, 16'000'000U);
  EXPECT_EQ(all[1].hits, 24U);
  EXPECT_EQ(all[1].first_visits, 8U);
  EXPECT_EQ(all[1].evictions, 6U);
  EXPECT_EQ(all[1].resends, 2U);
  EXPECT_EQ(all[1].change, 0.125);
  EXPECT_EQ(all[1].error, 0.5);
  EXPECT_EQ(all[1].cache_bytes, 5U);
}

TEST(BoundaryTable, LongNamesOfChunksMoveAllColumnsAlike) {
  const auto lines = boundary_table(
      std::vector{step_of("0.0/0>1.0/0", "forward"), step_of("10.12/1>11.12/1", "backward")});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[1], testing::ContainsRegex("^0.0/0>1.0/0 +forward "));
  EXPECT_THAT(lines[2], testing::ContainsRegex("^10.12/1>11.12/1 backward "));
  EXPECT_EQ(lines[0].find("direction"), lines[1].find("forward"));
  EXPECT_EQ(lines[0].size(), lines[1].size());
  EXPECT_EQ(lines[0].size(), lines[2].size());
}

TEST(BoundaryTable, IsALineOfHeadsAndOneForEachDirection) {
  control::BoundaryStep silent;
  silent.boundary = "1.0>2.0";
  silent.direction = "backward";
  const auto lines = boundary_table(std::vector{step_of("0.0>1.0", "forward"), silent});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], testing::HasSubstr("remembered"));
  EXPECT_THAT(lines[1], testing::ContainsRegex("0.0>1.0 +forward +8.0 MB +1.0 MB +8.0x +12 % "
                                               "+1.2 % +4.0 MB +12 +4 +3 +1$"));
  EXPECT_THAT(lines[2], testing::ContainsRegex("0 B +0 B +1.0x +- +- +0 B"));
  EXPECT_TRUE(boundary_table({}).empty());
}

TEST(BoundaryStep, ComesBackFromItsJson) {
  const control::BoundaryStep step = step_of("0.0>1.0", "forward");
  EXPECT_EQ(control::boundary_step_from(nlohmann::json::parse(to_json(step).dump())), step);
  control::BoundaryStep unknown = step;
  unknown.change = std::nullopt;
  unknown.error = std::nullopt;
  EXPECT_TRUE(to_json(unknown).at("change").is_null());
  EXPECT_EQ(control::boundary_step_from(nlohmann::json::parse(to_json(unknown).dump())), unknown);
  EXPECT_THROW(control::boundary_step_from(nlohmann::json{{"boundary", 3}}),
               nlohmann::json::exception);
}

}  // namespace
}  // namespace strait::console
