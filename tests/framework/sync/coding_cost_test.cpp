#include <gtest/gtest.h>

#include "framework/sync/forecast.h"
#include "framework/sync/methods.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

TEST(CodingCost, EveryMethodCostsBothThreads) {
  for (const std::string& method : method_names()) {
    const CodingCost cost = coding_cost(usual(method));
    EXPECT_GT(cost.engine, 0) << method;
    EXPECT_GT(cost.trainer, 0) << method;
  }
}

TEST(CodingCost, ScalesWithRoundsAndCoordinates) {
  for (const char* method : {"diloco", "streaming_diloco", "noloco"}) {
    SyncSettings settings = usual(method);
    settings.every = 30;
    const CodingCost often = coding_cost(settings);
    settings.every = 60;
    EXPECT_DOUBLE_EQ(coding_cost(settings).engine, often.engine / 2) << method;
    EXPECT_DOUBLE_EQ(coding_cost(settings).trainer, often.trainer / 2) << method;
  }
  SyncSettings settings = usual("cocktail");
  const CodingCost all = coding_cost(settings);
  settings.random /= 2;
  EXPECT_DOUBLE_EQ(coding_cost(settings).engine, all.engine / 2);
  EXPECT_DOUBLE_EQ(coding_cost(settings).trainer, all.trainer / 2);
}

TEST(CodingCost, SignsCostLessThanLevels) {
  SyncSettings settings = usual("cocktail");
  const CodingCost levels = coding_cost(settings);
  settings.bits = 1;
  EXPECT_LT(coding_cost(settings).engine, levels.engine);
}

}  // namespace
}  // namespace strait::sync
