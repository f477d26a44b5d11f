// What a checkpoint knows of frozen weights: hashes of what training computes with.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/store_error.h"
#include "models/initialize.h"
#include "models/model.h"
#include "stages/stage_state.h"
#include "tests/models/tiny_gpt2.h"
#include "tests/refusal_of.h"

namespace strait::stages {
namespace {

using Format = std::optional<kernels::MatrixFormat>;
using testing::AllOf;
using testing::HasSubstr;

std::vector<models::Parameter> frozen_block(Format format, std::uint64_t seed) {
  models::Lora lora;
  lora.quantization = format;
  models::ModelConfig config{"gpt2", models::tiny_values(),
                             std::make_shared<const models::Lora>(lora)};
  const auto model = models::make_model(config, {1, 1}, at::kFloat, at::kCPU);
  models::initialize(*model, config, seed);
  std::vector<models::Parameter> frozen = model->parameters();
  std::erase_if(frozen, [](const models::Parameter& one) { return one.trained; });
  return frozen;
}

// The sentence with which weights are refused that are not those of a checkpoint.
std::string refusal(const std::vector<models::Parameter>& saved,
                    const std::vector<models::Parameter>& now) {
  std::vector<tensors::NamedTensor> hashes;
  append_hashes(saved, hashes);
  return refusal_of<store::StoreError>([&] {
    check_hashes(now, [&](const std::string& name) {
      const auto found = std::ranges::find(hashes, name, &tensors::NamedTensor::name);
      return found->tensor;
    });
  });
}

TEST(FrozenHashes, RefuseOtherWeightsAndOtherQuantising) {
  const auto nf4 = frozen_block(kernels::MatrixFormat::nf4, 1);
  EXPECT_EQ(refusal(nf4, frozen_block(kernels::MatrixFormat::nf4, 1)), "nothing was refused");
  EXPECT_THAT(refusal(nf4, frozen_block(kernels::MatrixFormat::nf4, 2)),
              HasSubstr("is not the one that this run's adapters were trained with"));
  EXPECT_THAT(refusal(nf4, frozen_block(kernels::MatrixFormat::int4, 1)),
              AllOf(HasSubstr("attn.c_attn.weight"), HasSubstr("was quantised to nf4"),
                    HasSubstr("is quantised to int4 now")));
  EXPECT_THAT(refusal(nf4, frozen_block({}, 1)), HasSubstr("is not quantised now"));
  EXPECT_THAT(refusal(frozen_block({}, 1), nf4), HasSubstr("was not quantised"));
}

}  // namespace
}  // namespace strait::stages
