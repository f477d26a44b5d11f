#include "launcher/worker/compute_device.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::worker {
namespace {

using recipe::Device;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Accelerators kTwoGpus{at::kCUDA, 2};

TEST(ComputeDevice, AutoTakesGpusInTurnAndTheCpuWithout) {
  EXPECT_EQ(choose_device(Device::automatic, std::nullopt, 3, "stage 3.0"), at::kCPU);
  for (const Device requested : {Device::automatic, Device::cuda}) {
    for (const std::int64_t index : {0, 1, 2, 3}) {
      EXPECT_EQ(choose_device(requested, kTwoGpus, index, "a stage"),
                at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index % 2)));
    }
  }
  const Accelerators of_plugin{at::kPrivateUse1, 1};
  EXPECT_EQ(choose_device(Device::automatic, of_plugin, 1, ""), at::Device(at::kPrivateUse1, 0));
}

TEST(ComputeDevice, CpuIsTakenWhereTheRecipeSaysSo) {
  EXPECT_EQ(choose_device(Device::cpu, kTwoGpus, 1, "a stage"), at::kCPU);
}

TEST(ComputeDevice, NamesTheProcessWithoutGpu) {
  for (const auto& here : {std::optional<Accelerators>(), {{at::kPrivateUse1, 1}}}) {
    EXPECT_THAT([&] { choose_device(Device::cuda, here, 0, "stage 1.0 on host b"); },
                ThrowsMessage<base::UserError>(
                    AllOf(HasSubstr("stage 1.0 on host b"), HasSubstr("model.device"))));
  }
}

TEST(ComputeDevice, ProductIsRightOnThisMachine) {
  const std::vector<DeviceCheck> checks = check_devices();
  EXPECT_THAT(checks.front().text, HasSubstr("libtorch"));
  for (const DeviceCheck& check : checks) EXPECT_TRUE(check.works) << check.text;
  EXPECT_THAT(checks, testing::Contains(testing::Field(&DeviceCheck::text,
                                                       HasSubstr("cpu: a product of 512 x 512"))));
}

}  // namespace
}  // namespace strait::worker
