#include "launcher/process/nvidia_driver.h"

#include <dlfcn.h>

#include <array>
#include <memory>

namespace strait::process {
namespace {

// The part of the library's interface that is used here, by the names and layouts of its manual: a
// build needs no header of it, and a machine without a GPU has no such library.
constexpr int kSuccess = 0;
constexpr unsigned kTemperatureOfGpu = 0;
using Device = void*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Utilization {
  unsigned gpu;
  unsigned memory;
};

class Library {
 public:
  explicit Library(const char* name) : object_(dlopen(name, RTLD_NOW | RTLD_LOCAL), close) {}
  bool loaded() const { return object_ != nullptr; }

  // Whether the function is there and has succeeded.
  template <class... Arguments>
  bool call(const char* function, Arguments... arguments) const {
    void* const found = dlsym(object_.get(), function);
    if (found == nullptr) return false;
    return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) == kSuccess;
  }

 private:
  static void close(void* object) { dlclose(object); }
  std::unique_ptr<void, void (*)(void*)> object_;
};

using Text = std::array<char, 96>;  // both lengths are this or less in the manual

NvidiaDriver::Gpu gpu_of(const Library& nvml, Device device) {
  NvidiaDriver::Gpu gpu;
  Text name{};
  if (nvml.call("nvmlDeviceGetName", device, name.data(), unsigned{name.size() - 1})) {
    gpu.name = name.data();
  }
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) {
    gpu.memory_bytes = static_cast<std::int64_t>(memory.total);
    gpu.free_bytes = static_cast<std::int64_t>(memory.free);
  }
  unsigned celsius = 0;
  if (nvml.call("nvmlDeviceGetTemperature", device, kTemperatureOfGpu, &celsius)) {
    gpu.celsius = static_cast<int>(celsius);
  }
  Utilization busy{};
  if (nvml.call("nvmlDeviceGetUtilizationRates", device, &busy)) {
    gpu.busy_percent = static_cast<int>(busy.gpu);
  }
  return gpu;
}

}  // namespace

std::optional<NvidiaDriver> nvidia_driver(const char* library) {
  const Library nvml(library);
  if (!nvml.loaded() || !nvml.call("nvmlInit_v2")) return std::nullopt;
  NvidiaDriver driver;
  Text version{};
  if (nvml.call("nvmlSystemGetDriverVersion", version.data(), unsigned{version.size() - 1})) {
    driver.version = version.data();
  }
  unsigned count = 0;
  nvml.call("nvmlDeviceGetCount_v2", &count);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device)) {
      driver.gpus.push_back(gpu_of(nvml, device));
    }
  }
  nvml.call("nvmlShutdown");
  return driver;
}

}  // namespace strait::process
