#include "launcher/plugin/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::plugin {
namespace {

TEST(PluginCopy, RefusesContentThatDiffersFromLauncher) {
  const ScratchDirectory scratch;
  const std::string file = (scratch / "mine.so").string();
  std::ofstream(file) << "one";
  const std::vector<plan::PluginCopy> copies = plan::plugin_copies({file});
  std::ofstream(file) << "two";
  EXPECT_THAT(base::user_error(base::ExitCode::mismatch, [&] { load_copies(copies); }),
              testing::HasSubstr("mine.so differs from the launcher's"));
}

TEST(PluginCopy, RefusesMissingFile) {
  EXPECT_THROW(plan::plugin_copies({"nowhere/mine.so"}), store::StoreError);
}

}  // namespace
}  // namespace strait::plugin
