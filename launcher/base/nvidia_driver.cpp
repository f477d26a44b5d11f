#include "launcher/base/nvidia_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace strait::base {
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

using Text = std::array<char, 96>;  // both lengths are this or less in the manual

constexpr const char* kLibrary = "libtorch_cuda.so";

}  // namespace

class NvidiaSession::Library {
 public:
  explicit Library(const char* name) : object_(dlopen(name, RTLD_NOW | RTLD_LOCAL), close) {}
  bool loaded() const { return object_ != nullptr; }

  // Whether the function is there and has succeeded.
  template <class... Arguments>
  bool call(const char* function, Arguments... arguments) const {
    // Looked up for each call: old drivers lack some functions, and one read a second costs
    // nothing.
    void* const found = dlsym(object_.get(), function);
    if (found == nullptr) return false;
    return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) == kSuccess;
  }

  NvidiaDriver::Gpu gpu(Device device) const {
    NvidiaDriver::Gpu gpu;
    Text name{};
    if (call("nvmlDeviceGetName", device, name.data(), unsigned{name.size() - 1})) {
      gpu.name = name.data();
    }
    Text uuid{};
    if (call("nvmlDeviceGetUUID", device, uuid.data(), unsigned{uuid.size() - 1})) {
      gpu.uuid = uuid.data();
    }
    Memory memory{};
    if (call("nvmlDeviceGetMemoryInfo", device, &memory)) {
      gpu.memory_bytes = static_cast<std::int64_t>(memory.total);
      gpu.free_bytes = static_cast<std::int64_t>(memory.free);
    }
    unsigned celsius = 0;
    if (call("nvmlDeviceGetTemperature", device, kTemperatureOfGpu, &celsius)) {
      gpu.celsius = static_cast<int>(celsius);
    }
    Utilization busy{};
    if (call("nvmlDeviceGetUtilizationRates", device, &busy)) {
      gpu.busy_percent = static_cast<int>(busy.gpu);
    }
    return gpu;
  }

 private:
  static void close(void* object) { dlclose(object); }
  std::unique_ptr<void, void (*)(void*)> object_;
};

NvidiaSession::NvidiaSession(const char* library) : library_(std::make_unique<Library>(library)) {
  if (!library_->loaded() || !library_->call("nvmlInit_v2")) library_.reset();
}

NvidiaSession::~NvidiaSession() {
  if (library_) library_->call("nvmlShutdown");
}

std::optional<NvidiaDriver> NvidiaSession::read() const {
  if (!library_) return std::nullopt;
  NvidiaDriver driver;
  Text version{};
  if (library_->call("nvmlSystemGetDriverVersion", version.data(), unsigned{version.size() - 1})) {
    driver.version = version.data();
  }
  unsigned count = 0;
  library_->call("nvmlDeviceGetCount_v2", &count);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (library_->call("nvmlDeviceGetHandleByIndex_v2", i, &device)) {
      driver.gpus.push_back(library_->gpu(device));
    }
  }
  return driver;
}

std::optional<NvidiaDriver> nvidia_driver(const char* library) {
  return NvidiaSession(library).read();
}

std::vector<NvidiaDriver::Gpu> visible_gpus(const NvidiaDriver& driver, const char* visible) {
  if (visible == nullptr) return driver.gpus;
  std::vector<NvidiaDriver::Gpu> shown;
  std::istringstream list(visible);
  for (std::string word; std::getline(list, word, ',');) {
    std::size_t index = driver.gpus.size();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    if (error != std::errc{} || end != word.data() + word.size()) {
      const auto named = std::ranges::find_if(driver.gpus, [&](const NvidiaDriver::Gpu& gpu) {
        // CUDA accepts a part of the UUID, too.
        return word.starts_with("GPU-") && gpu.uuid.starts_with(word);
      });
      index = static_cast<std::size_t>(named - driver.gpus.begin());
    }
    if (index >= driver.gpus.size()) break;  // CUDA, too, ignores what follows an unknown one
    shown.push_back(driver.gpus[index]);
  }
  return shown;
}

std::vector<NvidiaDriver::Gpu> gpus_here() {
  // A build for the CPU cannot use them, whatever the driver says.
  if (!libtorch_has_cuda()) return {};
  const std::optional<NvidiaDriver> driver = nvidia_driver();
  if (!driver) return {};
  return visible_gpus(*driver, std::getenv("CUDA_VISIBLE_DEVICES"));
}

std::vector<std::int64_t> gpu_memory_here() {
  std::vector<std::int64_t> bytes;
  for (const NvidiaDriver::Gpu& gpu : gpus_here()) bytes.push_back(gpu.memory_bytes.value_or(0));
  return bytes;
}

// Asks the loader where it searches: the program's RPATH, LD_LIBRARY_PATH and the system's folders.
bool libtorch_has_cuda() {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size{};
  if (program == nullptr || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return false;
  const auto bytes = std::make_unique<std::byte[]>(size.dls_size);
  auto* const folders = new (bytes.get()) Dl_serinfo(size);
  if (dlinfo(program, RTLD_DI_SERINFO, folders) != 0) return false;
  for (unsigned i = 0; i < folders->dls_cnt; ++i) {
    std::error_code none;
    const std::filesystem::path folder = folders->dls_serpath[i].dls_name;
    if (std::filesystem::exists(folder / kLibrary, none)) return true;
  }
  return false;
}

const std::string& load_libtorch_cuda() {
  static const std::string kFault = [] {
    if (!libtorch_has_cuda()) return std::string();
    // It stays loaded. Its symbols are global, as symbols of a linked library are.
    if (dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL) != nullptr) return std::string();
    return std::string(dlerror());
  }();
  return kFault;
}

}  // namespace strait::base
