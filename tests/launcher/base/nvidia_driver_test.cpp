#include "launcher/base/nvidia_driver.h"

#include <gtest/gtest.h>

namespace strait::base {
namespace {

TEST(NvidiaDriver, IsMissingWithoutItsLibrary) {
  EXPECT_FALSE(nvidia_driver("no-such-library.so").has_value());
  EXPECT_FALSE(nvidia_driver("libm.so.6").has_value());  // a library of something else
}

TEST(NvidiaDriver, DescribesItsGpus) {
  const auto driver = nvidia_driver(NVIDIA_ML_LIBRARY);
  ASSERT_TRUE(driver.has_value());
  EXPECT_EQ(driver->version, "580.65.06");
  ASSERT_EQ(driver->gpus.size(), 2U);
  EXPECT_EQ(driver->gpus[0].name, "NVIDIA L4");
  EXPECT_EQ(driver->gpus[0].memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(driver->gpus[0].free_bytes, std::int64_t{79} << 30);
  EXPECT_EQ(driver->gpus[0].celsius, 41);
  EXPECT_EQ(driver->gpus[0].busy_percent, 97);
  EXPECT_EQ(driver->gpus[1].name, "Another GPU");
  EXPECT_EQ(driver->gpus[1].celsius, std::nullopt);
  EXPECT_EQ(driver->gpus[1].busy_percent, std::nullopt);
}

TEST(NvidiaDriver, ShowsGpusAsCudaVisibleDevicesSays) {
  const auto driver = nvidia_driver(NVIDIA_ML_LIBRARY);
  ASSERT_TRUE(driver.has_value());
  const auto names = [&](const char* visible) {
    std::string all;
    for (const NvidiaDriver::Gpu& gpu : visible_gpus(*driver, visible)) all += gpu.name + ";";
    return all;
  };
  EXPECT_EQ(names(nullptr), "NVIDIA L4;Another GPU;");
  EXPECT_EQ(names("1,0"), "Another GPU;NVIDIA L4;");
  EXPECT_EQ(names("GPU-b"), "Another GPU;");
  EXPECT_EQ(names("0,7,1"), "NVIDIA L4;") << "CUDA ignores what follows an unknown one";
  for (const char* none : {"", "-1", "MIG-1", "1x"}) EXPECT_EQ(names(none), "") << none;
}

}  // namespace
}  // namespace strait::base
