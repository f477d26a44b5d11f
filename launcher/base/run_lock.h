#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/file_descriptor.h"
#include "launcher/base/process_identity.h"

namespace strait::base {

// The holder of a lock, as its file says.
struct LockHolder {
  ProcessIdentity process;
  nlohmann::json fields;  // the whole object: each kind of lock adds its own
};

// A file that one process at a time has locked. It names that process in a JSON object of at most
// 512 bytes. The lock is the kernel's (flock), which ends with the process, even if that is killed.
// Where a file system has no locks, the recorded holder counts.
class LockFile {
 public:
  // Creates the file if it does not exist. UserError: it cannot be opened.
  explicit LockFile(std::filesystem::path path);
  // nullopt and errno: it cannot be opened. A file opened only for reading is not to be recorded.
  static std::optional<LockFile> existing(std::filesystem::path path, bool only_read = true);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return file_.number(); }  // -1: moved from

  // Locks it for the life of this object. False: another process has it locked.
  bool try_lock();

  // nullopt: the holder has not written its name yet, or it died while it wrote.
  std::optional<LockHolder> holder() const;

  // Names this process, with further fields. UserError: it cannot be written.
  void record(const nlohmann::ordered_json& further);
  void erase_holder();  // as far as possible

 private:
  LockFile(std::filesystem::path path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  FileDescriptor file_;
};

// The launcher that owns a run directory.
struct LiveRun : ProcessIdentity {
  std::string since;  // "2025-03-01 14:02:11"
  std::string job;    // its Slurm job; empty: none

  // The process still exists; a later one with the same pid does not count. On another host this
  // cannot be determined. It counts as alive, unless this host has that name and has booted since,
  // or this process is a restart of the same Slurm job.
  bool alive() const;
  bool operator==(const LiveRun&) const = default;
  std::string sentence() const;  // "process 12, since …", "process 12 of host b, since …"
  // "process 12 is suspended …", with the command that lets it go on; empty: it is not.
  std::string suspension() const;
};

// The file <run>/lock: its holder may write into the run. Held until the destructor or the end of
// the process, however it ends. The lock of a dead process is taken over. On a shared file system
// the holder may run on another host.
class RunLock {
 public:
  // UserError: it is held (by which process, since when), or it cannot be created.
  explicit RunLock(const std::filesystem::path& run);
  RunLock(RunLock&&) = default;
  RunLock& operator=(RunLock&&) = default;
  ~RunLock();

  // False: the file or its directory is gone, or the file names another holder or none.
  bool is_of(const std::filesystem::path& run) const;

  // The current holder, if any. Does not lock.
  static std::optional<LiveRun> holder(const std::filesystem::path& run);

 private:
  LockFile file_;
};

}  // namespace strait::base
