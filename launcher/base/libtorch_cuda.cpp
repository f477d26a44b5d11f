#include "launcher/base/libtorch_cuda.h"

#include <dlfcn.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>

namespace strait::base {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";

}  // namespace

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
    // It stays loaded. Its symbols are global, as those of a linked library.
    if (dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL) != nullptr) return std::string();
    return std::string(dlerror());
  }();
  return kFault;
}

}  // namespace strait::base
