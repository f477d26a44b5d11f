#include "stages/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "framework/net/link_error.h"

namespace strait::stages::nccl {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw net::LinkError(net::LinkError::Kind::unusable, sentence);
}

template <class Function>
void find(void* object, const std::string& file, const char* name, Function& function) {
  void* const found = dlsym(object, name);
  if (found == nullptr) refuse(fmt::format("{} has no function {}", file, name));
  function = reinterpret_cast<Function>(found);
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

// Never unloaded, because its threads and its work on the device may outlive its last use.
Library::Library(const std::string& file) {
  void* const object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (object == nullptr) refuse(fmt::format("{} cannot be loaded ({})", file, dlerror()));
  find(object, file, "ncclGetVersion", functions_.get_version);
  const Result result = functions_.get_version(&version_);
  if (result != kSuccess || version_ < kLeastVersion) {
    refuse(fmt::format("{} is NCCL {}; {} or newer is needed", file, version_text(version_),
                       version_text(kLeastVersion)));
  }
  find(object, file, "ncclGetUniqueId", functions_.get_unique_id);
  find(object, file, "ncclCommInitRankConfig", functions_.init_rank_config);
  find(object, file, "ncclAllReduce", functions_.all_reduce);
  find(object, file, "ncclBroadcast", functions_.broadcast);
  find(object, file, "ncclGroupStart", functions_.group_start);
  find(object, file, "ncclGroupEnd", functions_.group_end);
  find(object, file, "ncclCommGetAsyncError", functions_.get_async_error);
  find(object, file, "ncclCommAbort", functions_.abort);
  find(object, file, "ncclGetErrorString", functions_.get_error_string);
  find(object, file, "ncclGetLastError", functions_.get_last_error);
}

std::string Library::version() const { return version_text(version_); }

std::string Library::text(Result error, Communicator* communicator) const {
  const char* const last = communicator == nullptr ? "" : functions_.get_last_error(communicator);
  const std::string details = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  return functions_.get_error_string(error) + details;
}

}  // namespace strait::stages::nccl
