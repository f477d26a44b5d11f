#include "framework/store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "framework/store/store_error.h"

namespace strait::store {

FileDescriptor try_lock(const std::filesystem::path& path) {
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.open()) throw system_error("open", path, errno);
  // flock and not fcntl: a lock of fcntl would end when any descriptor of the file is closed.
  if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return FileDescriptor();
  throw system_error("lock", path, errno);
}

bool is_same_file(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file.number(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace strait::store
