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

}  // namespace strait::base
