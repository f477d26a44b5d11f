#pragma once

#include <filesystem>
#include <string>

namespace strait::control {

// A folder of this user's alone, among temporary files, that goes with this object.
class ScratchFolder {
 public:
  // `purpose` is part of its name. UserError (storage_io): it cannot be made.
  explicit ScratchFolder(const std::string& purpose);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace strait::control
