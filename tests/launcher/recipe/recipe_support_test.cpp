#include "launcher/recipe/recipe_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::recipe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Recipe with(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"model.path=m", "data.train=t", "train.steps=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_recipe("", "r.toml", all);
}

TEST(RecipeSupport, SupportsDefaultsAndReplicas) {
  EXPECT_NO_THROW(check_supported(with({})));
  EXPECT_NO_THROW(check_supported(with({"pipeline.replicas=4", "sync.method=cocktail"})));
}

TEST(RecipeSupport, NamesUnsupportedKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"pipeline.partition=profile", "pipeline.partition"},
      {"train.micro_batch=auto", "train.micro_batch"},
  };
  for (const auto& [setting, key] : cases) {
    EXPECT_THAT(unsupported_settings(with({setting})), ElementsAre(StartsWith(key))) << setting;
  }
}

TEST(RecipeSupport, ReportsAllUnsupportedKeys) {
  EXPECT_THAT(
      [] {
        check_supported(with({"train.micro_batch=auto", "pipeline.partition=profile"}));
      },
      testing::ThrowsMessage<base::UserError>(
          testing::AllOf(HasSubstr("train.micro_batch"), HasSubstr("pipeline.partition"))));
}

}  // namespace
}  // namespace strait::recipe
