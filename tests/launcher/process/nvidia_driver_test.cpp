#include "launcher/process/nvidia_driver.h"

#include <gtest/gtest.h>

namespace strait::process {
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
  EXPECT_EQ(driver->gpus[0].name, "A GPU");
  EXPECT_EQ(driver->gpus[0].memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(driver->gpus[0].free_bytes, std::int64_t{79} << 30);
  EXPECT_EQ(driver->gpus[0].celsius, 41);
  EXPECT_EQ(driver->gpus[0].busy_percent, 97);
  EXPECT_EQ(driver->gpus[1].name, "Another GPU");
  EXPECT_EQ(driver->gpus[1].celsius, std::nullopt);
  EXPECT_EQ(driver->gpus[1].busy_percent, std::nullopt);
}

}  // namespace
}  // namespace strait::process
