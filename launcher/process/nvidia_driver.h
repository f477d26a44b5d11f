#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strait::process {

// What NVIDIA's driver says of the GPUs of this machine, also of those that CUDA_VISIBLE_DEVICES
// hides. A value that it does not give is missing.
struct NvidiaDriver {
  struct Gpu {
    std::string name;
    std::optional<std::int64_t> memory_bytes;
    std::optional<std::int64_t> free_bytes;
    std::optional<int> celsius;
    std::optional<int> busy_percent;
  };
  std::string version;
  std::vector<Gpu> gpus;
};

// Nullopt: there is no such driver, or it does not answer. `library` comes with the driver.
std::optional<NvidiaDriver> nvidia_driver(const char* library = "libnvidia-ml.so.1");

}  // namespace strait::process
