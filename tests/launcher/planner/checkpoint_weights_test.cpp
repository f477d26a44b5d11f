#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/atomic_file.h"
#include "framework/store/store_error.h"
#include "framework/tensors/safetensors_writer.h"
#include "launcher/base/errors.h"
#include "launcher/planner/model_weights.h"
#include "models/model.h"
#include "stages/stage_state.h"
#include "tests/models/tiny_gpt2.h"
#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

models::ModelConfig tiny_config(bool adapters, std::optional<kernels::MatrixFormat> format = {}) {
  models::ModelConfig config{"gpt2", models::tiny_values()};
  if (!adapters) return config;
  models::Lora lora;
  lora.quantization = format;
  config.lora = std::make_shared<const models::Lora>(lora);
  return config;
}

at::Tensor values_of(const models::TensorShape& tensor) {
  at::Generator generator = kernels::keyed_generator(kernels::hash_name(tensor.name), at::kCPU);
  return at::empty(tensor.shape, at::kFloat).normal_(0, 0.3, generator);
}

// The first of the model that ends with this.
models::TensorShape find_tensor(const models::ModelConfig& config, const std::string& ending) {
  for (const models::TensorShape& tensor : models::describe(config).tensors()) {
    if (tensor.name.ends_with(ending)) return tensor;
  }
  throw std::invalid_argument(ending);
}

// A directory of the model that a run started from.
void write_model(const fs::path& directory, const models::ModelConfig& config, float added = 0) {
  std::vector<tensors::NamedTensor> all;
  for (const models::TensorShape& tensor : models::describe(config).tensors()) {
    all.push_back({tensor.name, values_of(tensor).add_(added)});
  }
  store::make_directory(directory);
  tensors::write_safetensors(directory / "model.safetensors", all);
}

std::vector<tensors::NamedTensor> hashes_of(const models::ModelConfig& config) {
  const int last = static_cast<int>(models::describe(config).layers.size()) - 1;
  const auto model = models::make_model(config, {0, last}, at::kFloat, at::kCPU);
  std::vector<models::Parameter> frozen;
  for (const models::Parameter& parameter : model->parameters()) {
    if (parameter.trained || !parameter.owned) continue;
    models::assign(parameter, values_of(find_tensor(config, parameter.name)));
    frozen.push_back(parameter);
  }
  std::vector<tensors::NamedTensor> hashes;
  stages::append_hashes(frozen, hashes);
  return hashes;
}

// A checkpoint of one stage: what is trained, and hashes of the rest.
fs::path write_checkpoint(const fs::path& run, const models::ModelConfig& config) {
  const fs::path path = store::checkpoint_directory(run, store::Step{3});
  store::make_directory(path);
  std::vector<tensors::NamedTensor> trained;
  for (const models::TensorShape& tensor : models::describe(config).trained_tensors()) {
    trained.push_back({tensor.name, values_of(tensor)});
  }
  store::Manifest manifest;
  manifest.step = store::Step{3};
  const auto write = [&](const std::string& name, const std::vector<tensors::NamedTensor>& all) {
    const store::FileSummary file = tensors::write_safetensors(path / name, all);
    manifest.files.push_back({name, file.size, file.hash});
  };
  write(store::weights_name(0, 0), trained);
  write(store::shard_name(0, 0), hashes_of(config));
  store::commit_checkpoint(path, manifest);
  return path;
}

TEST(CheckpointWeights, OfWholeModelNeedNothingElse) {
  const ScratchDirectory folder;
  const models::ModelConfig config = tiny_config(false);
  const fs::path checkpoint = write_checkpoint(folder / "run", config);
  recipe::Recipe recipe;
  recipe.model.path = folder / "gone";
  const models::TensorShape tensor = find_tensor(config, "attn.c_attn.weight");
  {
    const CheckpointWeights weights(recipe, config, checkpoint);
    EXPECT_TRUE(at::equal(weights.read(tensor.name), values_of(tensor)));
    EXPECT_TRUE(at::equal(weights.read_merged(tensor.name), values_of(tensor)));
    EXPECT_THAT(refusal_of<store::StoreError>([&] { weights.origin(tensor.name); }),
                HasSubstr("gone is missing"));
  }
  recipe.model.weights = recipe::Weights::run;
  recipe.model.weights_run = folder / "other/checkpoints/step-9";  // pruned
  const CheckpointWeights weights(recipe, config, checkpoint);
  EXPECT_TRUE(at::equal(weights.read(tensor.name), values_of(tensor)));
  EXPECT_EQ(weights.origin(tensor.name).name, tensor.name);
  EXPECT_EQ(weights.origin(tensor.name).type, at::kFloat);
}

TEST(CheckpointWeights, OfAdaptersAreReadWithoutTheModel) {
  const ScratchDirectory folder;
  const models::ModelConfig config = tiny_config(true);
  recipe::Recipe recipe;
  recipe.model.path = folder / "gone";
  const CheckpointWeights weights(recipe, config, write_checkpoint(folder / "run", config));
  const models::TensorShape adapter = models::describe(config).trained_tensors().front();
  EXPECT_TRUE(at::equal(weights.read(adapter.name), values_of(adapter)));
  EXPECT_THAT(refusal_of<store::StoreError>(
                  [&] { weights.read(find_tensor(config, "attn.c_attn.weight").name); }),
              HasSubstr("gone is missing"));
}

TEST(CheckpointWeights, RefuseFrozenTensorsThatHaveChanged) {
  for (const auto format :
       {std::optional<kernels::MatrixFormat>(), std::optional(kernels::MatrixFormat::nf4)}) {
    const ScratchDirectory folder;
    const models::ModelConfig config = tiny_config(true, format);
    const fs::path checkpoint = write_checkpoint(folder / "run", config);
    recipe::Recipe recipe;
    recipe.model.path = folder / "model";
    const models::TensorShape tensor = find_tensor(config, "attn.c_attn.weight");
    const auto refusal = [&] {
      const CheckpointWeights weights(recipe, config, checkpoint);
      return refusal_of<store::StoreError>([&] { weights.read_merged(tensor.name); });
    };
    write_model(folder / "model", config);
    EXPECT_EQ(refusal(), "nothing was refused");
    write_model(folder / "model", config, 0.5F);
    EXPECT_THAT(refusal(), HasSubstr("is not the one that this run's adapters were trained with"));
    EXPECT_THAT(refusal(), HasSubstr(tensor.name));
    // Where only the weights are here, there is nothing to compare with.
    fs::remove(checkpoint / store::shard_name(0, 0));
    EXPECT_EQ(refusal(), "nothing was refused");
  }
}

TEST(ModelWeights, RefuseTiedProjectionThatDiffersInOneRow) {
  const ScratchDirectory folder;
  const at::Tensor table = at::arange(1500 * 4).view({1500, 4}).to(at::kFloat);
  const at::Tensor projection = table.clone();
  recipe::Recipe::Model source;
  source.path = folder.path();
  const auto refusal = [&] {
    tensors::write_safetensors(
        folder / "model.safetensors",
        std::vector<tensors::NamedTensor>{{"lm_head.weight", projection},
                                          {"transformer.wte.weight", table}});
    return refusal_of<base::UserError>([&] { check_tied_projection(source, tiny_config(false)); });
  };
  EXPECT_EQ(refusal(), "nothing was refused");
  projection[1499][0] = -1;
  EXPECT_THAT(refusal(), HasSubstr("lm_head.weight is another matrix than transformer.wte.weight"));
}

}  // namespace
}  // namespace strait::planner
