#include "launcher/plan/stage_job.h"
#include "launcher/plugin/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "tests/launcher/scratch_directory.h"

namespace strait::plugin {
namespace {

TEST(PluginCopy, TravelsAsItIs) {
  const std::vector<plan::PluginCopy> copies = {{"a/b.so", "12"}, {"c d.so", "34"}};
  const auto read = plan::plugin_copies_from_json(nlohmann::json::parse(plan::to_json(copies).dump()));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[1].file, "c d.so");
  EXPECT_EQ(read[1].hash, "34");
  EXPECT_THROW(plan::plugin_copies_from_json(nlohmann::json::parse("[[1]]")), nlohmann::json::exception);
}

TEST(PluginCopy, AnotherContentThanTheLaunchersIsNotLoaded) {
  const ScratchDirectory scratch;
  const std::string file = (scratch / "mine.so").string();
  std::ofstream(file) << "one";
  const std::vector<plan::PluginCopy> copies = plan::plugin_copies({file});
  std::ofstream(file) << "two";
  try {
    load_copies(copies);
    FAIL() << "another file was loaded";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::mismatch);
    EXPECT_THAT(error.what(), testing::HasSubstr("mine.so is not the launcher's"));
  }
}

TEST(PluginCopy, OneThatIsNotThereIsNamed) {
  EXPECT_THROW(plan::plugin_copies({"nowhere/mine.so"}), store::StoreError);
}

}  // namespace
}  // namespace strait::plugin
