// Stands for libnvidia-ml in nvidia_driver_test.cpp: a driver with two GPUs, of which the second
// one has no sensors.
#include <cstdint>
#include <cstring>

namespace {
constexpr int kNotSupported = 3;
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
std::uintptr_t index_of(void* device) { return reinterpret_cast<std::uintptr_t>(device) - 1; }
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  std::strncpy(text, index_of(device) == 0 ? "NVIDIA L4" : "Another GPU", size);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::strncpy(text, index_of(device) == 0 ? "GPU-a" : "GPU-b", size);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* /*device*/, Memory* memory) {
  *memory = {std::uint64_t{80} << 30, std::uint64_t{79} << 30, std::uint64_t{1} << 30};
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int /*sensor*/, unsigned* celsius) {
  if (index_of(device) != 0) return kNotSupported;
  *celsius = 41;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* busy) {
  if (index_of(device) != 0) return kNotSupported;
  *busy = {97, 12};
  return 0;
}
}
