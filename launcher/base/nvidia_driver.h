#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace strait::base {

// What NVIDIA's driver says of the GPUs of this machine, also of those that CUDA_VISIBLE_DEVICES
// hides. A value that it does not give is missing.
struct NvidiaDriver {
  struct Gpu {
    std::string name;
    std::string uuid;  // "GPU-5f2e..."
    std::optional<std::int64_t> memory_bytes;
    std::optional<std::int64_t> free_bytes;
    std::optional<int> celsius;
    std::optional<int> busy_percent;
  };
  std::string version;
  std::vector<Gpu> gpus;
};

inline constexpr const char* kNvidiaLibrary = "libnvidia-ml.so.1";  // comes with the driver

// Nullopt: there is no such driver, or it does not answer.
std::optional<NvidiaDriver> nvidia_driver(const char* library = kNvidiaLibrary);

// The library stays loaded, so that its answer costs little. One thread at a time.
class NvidiaSession {
 public:
  explicit NvidiaSession(const char* library = kNvidiaLibrary);
  NvidiaSession(const NvidiaSession&) = delete;
  NvidiaSession& operator=(const NvidiaSession&) = delete;
  ~NvidiaSession();

  std::optional<NvidiaDriver> read() const;  // as nvidia_driver()

 private:
  class Library;
  std::unique_ptr<Library> library_;  // null: there is no driver
};

// Those that CUDA shows to a process with this value of CUDA_VISIBLE_DEVICES, in its order; null:
// all. Pure. CUDA counts as the driver does where CUDA_DEVICE_ORDER is PCI_BUS_ID.
std::vector<NvidiaDriver::Gpu> visible_gpus(const NvidiaDriver& driver, const char* visible);

// The GPUs that stages could use in an environment and with a libtorch like ours, and bytes of
// each; empty: none.
std::vector<NvidiaDriver::Gpu> gpus_here();
std::vector<std::int64_t> gpu_memory_here();

// The part of libtorch that uses GPUs, libtorch_cuda.so. No program links it, so that one build
// runs with a libtorch for CPUs and with one with CUDA.

// Whether the loader would find it for this program. Loads nothing. Builds of one id may differ in
// this, and may be mixed in one run.
bool libtorch_has_cuda();

// Loads it if it is there, and it registers its devices. At the start of a program that uses
// libtorch; later calls only return the same result. Empty, or the loader's reason for refusing it.
const std::string& load_libtorch_cuda();

}  // namespace strait::base
