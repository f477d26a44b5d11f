#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/worker/commands.h"
#include "models/config_error.h"

namespace strait::worker {
namespace {

TEST(ComputeMeasure, MeasuresBlockOfModel) {
  const hosts::ComputeMeasured measured = measure_compute({R"({"model_type": "gpt2",
      "vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2})",
                                                           2, 16, 1});
  EXPECT_GT(measured.flops_per_second, 1e6);
  EXPECT_GT(measured.backward, 0.1);
  EXPECT_LT(measured.backward, 100);
  EXPECT_GT(measured.memory_bytes_per_second, 1e8);
  EXPECT_THAT(
      [] {
        measure_compute({"{}", 1, 8, 1});
      },
      testing::ThrowsMessage<models::ConfigError>(testing::HasSubstr("model_type")));
}

}  // namespace
}  // namespace strait::worker
