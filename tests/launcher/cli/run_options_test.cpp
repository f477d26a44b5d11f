#include "launcher/cli/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

using testing::ElementsAre;

TEST(Overrides, TakeOneValueEach) {
  CLI::App cli;
  std::string recipe;
  std::vector<std::string> overrides;
  cli.add_option("recipe", recipe)->required();
  add_overrides(&cli, overrides);
  cli.parse("--set train.steps=2 a.toml --set seed=3");
  EXPECT_EQ(recipe, "a.toml");
  EXPECT_THAT(overrides, ElementsAre("train.steps=2", "seed=3"));
}

// Every verb with --set takes what follows its value as the recipe.
TEST(Overrides, LeaveTheRecipeToTheVerb) {
  for (const std::string verb : {"run", "plan", "doctor", "probe"}) {
    SCOPED_TRACE(verb);
    CLI::App cli;
    Command command;
    add_run(cli, command);
    add_plan(cli, command);
    add_doctor(cli, command);
    add_probe(cli, command);
    EXPECT_NO_THROW(cli.parse(verb + " --set train.steps=2 a.toml"));
    EXPECT_TRUE(command.compute);
  }
}

}  // namespace
}  // namespace strait::cli
