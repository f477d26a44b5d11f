#include "framework/store/memory_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "framework/store/file_lock.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTmpfs = "/dev/shm";
constexpr const char* kNamePrefix = "strait-";
constexpr const char* kOwnerLock = "in-use";

// Removes the directories of processes that were killed.
void remove_abandoned() {
  for (const fs::path& entry : entries_of(kTmpfs)) {
    struct stat status {};
    if (!entry.filename().string().starts_with(kNamePrefix) ||
        ::lstat(entry.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != ::geteuid()) {
      continue;
    }
    // Without O_CREAT: its owner, or another process here, may be removing it.
    const FileDescriptor lock(::open((entry / kOwnerLock).c_str(), O_RDWR | O_CLOEXEC));
    if (!lock.open() || ::flock(lock.number(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    // The directory may have been removed and made again since it was listed.
    if (is_same_file(lock, entry / kOwnerLock)) fs::remove_all(entry, ignored);
  }
}

}  // namespace

fs::path MemoryDirectory::path_of(const std::string& name) {
  return fs::path(kTmpfs) / (kNamePrefix + name);
}

bool MemoryDirectory::contains(const fs::path& path) {
  return path.native().starts_with(path_of("").native());
}

MemoryDirectory::MemoryDirectory(fs::path path) : path_(std::move(path)) {
  remove_abandoned();
  // Locked before it has its name: without its lock it would count as abandoned.
  const fs::path unnamed =
      path_.parent_path() / fmt::format(".{}.{}", path_.filename().string(), ::getpid());
  if (::mkdir(unnamed.c_str(), 0700) != 0) throw system_error("make", path_, errno);
  try {
    in_use_ = try_lock(unnamed / kOwnerLock);
    if (::mkdir((unnamed / kCheckpointsFolder).c_str(), 0700) != 0 ||
        ::rename(unnamed.c_str(), path_.c_str()) != 0) {
      throw system_error("make", path_, errno);
    }
  } catch (const StoreError&) {
    std::error_code ignored;
    fs::remove_all(unnamed, ignored);
    throw;
  }
}

MemoryDirectory::~MemoryDirectory() {
  std::error_code ignored;  // what stays is removed by the next object
  fs::remove_all(path_, ignored);
}

}  // namespace strait::store
