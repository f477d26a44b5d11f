#include "tests/framework/store/system_faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>

namespace strait::store {
namespace {

struct FaultState {
  bool armed = false;
  SystemFault fault;
  int calls = 0;
  int longest_write = 0;
  const std::function<void()>* before = nullptr;
};
FaultState fault_state;

// True when this call is to fail; errno is set then.
bool strikes(SystemCall call) {
  const bool changes = call < SystemCall::stat;
  if (fault_state.before != nullptr && changes) (*fault_state.before)();
  if (!fault_state.armed) return false;
  const SystemFault& fault = fault_state.fault;
  if (fault.call == SystemCall::any ? !changes : fault.call != call) return false;
  const int index = fault_state.calls++;
  if (index < fault.after || (fault.once && index > fault.after)) return false;
  if (fault.error == 0) ::_exit(99);
  errno = fault.error;
  return true;
}

}  // namespace

int with_fault(const SystemFault& fault, const std::function<void()>& work) {
  struct Disarm {
    ~Disarm() { fault_state.armed = false; }
  } disarm;
  fault_state = {.armed = true, .fault = fault};
  work();
  return fault_state.calls;
}

bool survives_death_at(int call, const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    int result = 1;
    try {
      with_fault({.call = SystemCall::any, .after = call, .error = 0, .once = false}, work);
      result = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(result);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    throw std::runtime_error("the child ended in another way than planned");
  }
  if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 99) {
    throw std::runtime_error("the child failed on its own");
  }
  return WEXITSTATUS(status) == 0;
}

void with_short_writes(int bytes, const std::function<void()>& work) {
  fault_state.longest_write = bytes;
  work();
  fault_state.longest_write = 0;
}

void with_slow_calls(const std::function<void()>& before, const std::function<void()>& work) {
  struct End {
    ~End() { fault_state.before = nullptr; }
  } end;
  fault_state.before = &before;
  work();
}

}  // namespace strait::store

using strait::store::fault_state;
using strait::store::strikes;
using strait::store::SystemCall;

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t size) {
  if (strikes(SystemCall::write)) return -1;
  if (fault_state.longest_write > 0) {
    size = std::min(size, static_cast<size_t>(fault_state.longest_write));
  }
  return ::syscall(SYS_write, descriptor, bytes, size);
}

int fsync(int descriptor) {
  if (strikes(SystemCall::fsync)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  if (strikes(SystemCall::rename)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
  if (strikes(SystemCall::fallocate)) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, size));
}

int remove(const char* path) noexcept {
  if (strikes(SystemCall::remove)) return -1;
  if (::unlink(path) == 0) return 0;
  return errno == EISDIR || errno == EPERM ? ::rmdir(path) : -1;
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if (strikes(SystemCall::remove)) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

int stat(const char* path, struct stat* found) noexcept {
  if (strikes(SystemCall::stat)) return -1;
  return ::fstatat(AT_FDCWD, path, found, 0);
}

ssize_t pread(int descriptor, void* bytes, size_t size, off_t offset) {
  if (strikes(SystemCall::pread)) return -1;
  return ::syscall(SYS_pread64, descriptor, bytes, size, offset);
}

int flock(int descriptor, int operation) noexcept {
  if (strikes(SystemCall::flock)) return -1;
  return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

// No system call of its own: it is passed on to the library's.
dirent* readdir(DIR* folder) {
  if (strikes(SystemCall::readdir)) return nullptr;
  static const auto next = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  return next(folder);
}

}  // extern "C"
