#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/planner/planned_model.h"
#include "tests/scratch_directory.h"

namespace strait::planner {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::bad_input);
    return error.what();
  }
  return "";
}

TEST(ModelFolder, RefusalEndsWithTheCommandThatGetsTheModel) {
  const auto of = [](const fs::path& model) { return refusal([&] { read_config(model, false); }); };
  EXPECT_THAT(of("meta-llama/Llama-3.2-1B"),
              AllOf(HasSubstr("is not a directory here"),
                    EndsWith(": hf download meta-llama/Llama-3.2-1B --local-dir "
                             "meta-llama/Llama-3.2-1B")));
  const ScratchDirectory scratch;
  EXPECT_THAT(of(scratch / "a model"),
              EndsWith(" --local-dir '" + (scratch / "a model").string() + "'"));
  ScratchDirectory::write(scratch / "tiny-Q4.gguf", "GGUF");
  const std::string fetches = ": hf download OWNER/NAME --local-dir tiny-Q4-safetensors";
  EXPECT_THAT(of(scratch.path()), AllOf(HasSubstr("has no config.json"), EndsWith(fetches)));
  EXPECT_THAT(of(scratch / "tiny-Q4.gguf"), AllOf(HasSubstr("is a file"), EndsWith(fetches)));
}

// Only a resume reads the configuration again, and it has --set.
TEST(ModelFolder, OfARunThatGoesOnItIsPutBackOrNamed) {
  EXPECT_THAT(refusal([] { read_config("nowhere", true); }),
              AllOf(HasSubstr("the run's model, nowhere, is not a directory here"),
                    HasSubstr("put back"), EndsWith("--set model.path=DIRECTORY")));
}

TEST(ModelFolder, WithoutWeightsSaysHowToGetThem) {
  const ScratchDirectory scratch;
  recipe::Recipe::Model model;
  model.path = scratch.path().string();
  const auto of = [&] { return refusal([&] { check_has_weights(model); }); };
  model.weights = recipe::Weights::random;
  EXPECT_EQ(of(), "");
  model.weights = recipe::Weights::load;
  EXPECT_THAT(of(), AllOf(HasSubstr("weights = \"random\""),
                          EndsWith("hf download OWNER/NAME --local-dir " + model.path)));
  ScratchDirectory::write(scratch / "b.gguf", "GGUF");
  EXPECT_THAT(of(), EndsWith(" --local-dir b-safetensors"));
  ScratchDirectory::write(scratch / "model.safetensors", "");
  EXPECT_EQ(of(), "");
}

TEST(ModelFolder, KnowsTheNameOnTheHub) {
  const auto of = [](const fs::path& model, const std::string& from) {
    return model_hub_name(model, R"({"_name_or_path": ")" + from + "\"}").value_or("");
  };
  EXPECT_EQ(of("model", "Qwen/Qwen2-0.5B"), "Qwen/Qwen2-0.5B");
  for (const char* path : {"/models/a", "./model", "../a/b", "a/b/c", "gpt2", "", "tests/golden"}) {
    EXPECT_EQ(of("model", path), "") << path;
  }
  EXPECT_EQ(of("/c/models--Qwen--Qwen2-0.5B/snapshots/1a", "/models/a"), "Qwen/Qwen2-0.5B");
  EXPECT_EQ(model_hub_name("model", "{}"), std::nullopt);
  EXPECT_EQ(model_hub_name("model", "nonsense"), std::nullopt);
}

}  // namespace
}  // namespace strait::planner
