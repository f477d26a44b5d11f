#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "launcher/worker/commands.h"
#include "tests/launcher/hosts/served_hosts.h"

namespace strait::worker {
namespace {

using testing::HasSubstr;

TEST(ComputeMeasure, MeasuresBlockOfModel) {
  hosts::ServedHosts hosts(1, measure_compute);
  const hosts::MeasureCompute order{R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 32,
                                 "n_embd": 32, "n_layer": 2, "n_head": 2})",
                                    2, 16, 1};
  const auto answers = hosts.reach->ask({{0, order}}, std::chrono::seconds(60));
  const auto& measured = std::get<hosts::ComputeMeasured>(answers.at(0));
  EXPECT_GT(measured.flops_per_second, 1e6);
  EXPECT_GT(measured.backward, 0.1);
  EXPECT_LT(measured.backward, 100);
  EXPECT_GT(measured.memory_bytes_per_second, 1e8);
  const auto none =
      hosts.reach->ask({{0, hosts::MeasureCompute{"{}", 1, 8, 1}}}, std::chrono::seconds(60));
  EXPECT_THAT(std::get<hosts::CommandFailed>(none.at(0)).text, HasSubstr("model_type"));
}

}  // namespace
}  // namespace strait::worker
