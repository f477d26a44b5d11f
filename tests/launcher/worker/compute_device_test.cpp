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

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr Accelerators kTwoGpus{at::kCUDA, 2};

TEST(ComputeDevice, AutoTakesGpusInTurnAndTheCpuWithout) {
  EXPECT_EQ(choose_device(Device::automatic, std::nullopt, 3, "stage 3.0"), at::kCPU);
  for (const Device wish : {Device::automatic, Device::cuda}) {
    for (const std::int64_t index : {0, 1, 2, 3}) {
      EXPECT_EQ(choose_device(wish, kTwoGpus, index, "a stage"),
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

// Five stages on two hosts: the first has four of them and two GPUs.
plan::Plan five_stages() {
  plan::Plan plan;
  for (std::uint32_t i = 0; i < 5; ++i) {
    plan::Plan::Process& process = plan.processes.emplace_back();
    process.name = {i, 0};
    process.host = i < 4 ? "a" : "b";
    process.host_index = i < 4 ? 0 : 1;
    process.state_bytes = (i + 1) * kGiB;
    process.activation_bytes = kGiB;
    process.cache_bytes = 1000 * kGiB;  // of the host
  }
  return plan;
}

TEST(ComputeDevice, StagesThatShareGpuFitTogether) {
  const plan::Plan plan = five_stages();
  // GPU 1 has stages 1 and 3: 3 and 5 GiB.
  EXPECT_NO_THROW(check_device_memory(plan, {1, 0}, 2, 8 * kGiB));
  EXPECT_THAT(
      [&] {
        check_device_memory(plan, {3, 0}, 2, 8 * kGiB - 1);
      },
      ThrowsMessage<base::UserError>(AllOf(HasSubstr("GPU 1 of host a has 8.0 GiB"),
                                           HasSubstr("what 2 stages keep on it needs 8.0 GiB"))));
  // The other host's one is alone.
  EXPECT_NO_THROW(check_device_memory(plan, {4, 0}, 1, 6 * kGiB));
  EXPECT_THAT(
      [&] {
        check_device_memory(plan, {4, 0}, 1, 5 * kGiB);
      },
      ThrowsMessage<base::UserError>(HasSubstr("what one stage keeps on it needs")));
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
