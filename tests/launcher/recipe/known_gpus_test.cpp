#include "launcher/recipe/known_gpus.h"

#include <gtest/gtest.h>

namespace strait::recipe {
namespace {

TEST(KnownGpus, AreFoundAsDriversAndPersonsWriteThem) {
  const auto known = [](std::string_view name) {
    const KnownGpu* gpu = known_gpu(name);
    return gpu == nullptr ? std::string_view("none") : gpu->name;
  };
  EXPECT_EQ(known("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(known("rtx-3080ti"), "RTX 3080 Ti");
  EXPECT_EQ(known("NVIDIA GeForce RTX 3080"), "RTX 3080");
  EXPECT_EQ(known("NVIDIA A100-SXM4-80GB"), "A100 80GB");
  EXPECT_EQ(known("NVIDIA A100-PCIE-40GB"), "A100");
  EXPECT_EQ(known("NVIDIA A10"), "A10");
  EXPECT_EQ(known("NVIDIA H100 80GB HBM3"), "H100");
  EXPECT_EQ(known("NVIDIA H100 PCIe"), "H100 PCIe");
  EXPECT_EQ(known("Tesla T4"), "T4");
  EXPECT_EQ(known("RTX 6000 Ada Generation"), "RTX 6000 Ada");
  EXPECT_EQ(known("A4000"), "none") << "which is no A40";
  EXPECT_EQ(known("GeForce GTX 1080"), "none");
  EXPECT_EQ(known(""), "none");
}

}  // namespace
}  // namespace strait::recipe
