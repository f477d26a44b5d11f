#include "launcher/planner/planned_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scratch_directory.h"

namespace strait::planner {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(AdapterNote, IsOfAnAdapterWhoseBaseHasAnotherName) {
  const ScratchDirectory folder;
  const auto note = [&folder](const std::string& fields, const std::string& path,
                              const std::string& config = "{}") {
    ScratchDirectory::write(folder / "adapter_config.json", fields);
    recipe::Recipe::Model model;
    model.adapter = folder.path().string();
    model.path = path;
    return adapter_note(model, config);
  };
  const auto base = [&note](const std::string& name, const std::string& path) {
    return note(R"({"r": 8, "base_model_name_or_path": ")" + name + "\"}", path);
  };
  EXPECT_THAT(base("meta-llama/Llama-3.2-1B", "models/Qwen2-0.5B"),
              AllOf(HasSubstr("\"meta-llama/Llama-3.2-1B\""), HasSubstr("\"models/Qwen2-0.5B\"")));
  EXPECT_EQ(base("Qwen/Qwen2-0.5B", "models/qwen2-0.5b/"), "");
  EXPECT_EQ(base("../Qwen2-0.5B/", "Qwen2-0.5B"), "");
  EXPECT_EQ(base("Qwen/Qwen2-0.5B", "/hub/models--Qwen--Qwen2-0.5B/snapshots/1a2b"), "");
  EXPECT_NE(base("Qwen/Qwen2-1.5B", "/hub/models--Qwen--Qwen2-0.5B/snapshots/1a2b"), "");
  // It need not say.
  EXPECT_EQ(base("", "model"), "");
  EXPECT_EQ(note(R"({"base_model_name_or_path": null})", "model"), "");
  EXPECT_EQ(note("{}", "model"), "");
  EXPECT_EQ(adapter_note({}, "{}"), "");
  // As strait exports one: by the name that the model's own config.json has.
  const std::string fields = R"({"base_model_name_or_path": "Qwen/Qwen2-0.5B"})";
  EXPECT_EQ(note(fields, "model", R"({"_name_or_path": "Qwen/Qwen2-0.5B"})"), "");
  EXPECT_NE(note(fields, "model", R"({"_name_or_path": "Qwen/Qwen2-1.5B"})"), "");
}

}  // namespace
}  // namespace strait::planner
