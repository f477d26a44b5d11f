#pragma once

#include <filesystem>
#include <string>

namespace strait::base {

// A temporary folder, private to this user; the destructor removes it.
class ScratchFolder {
 public:
  // `purpose` is part of its name. UserError (storage_io): it cannot be created.
  explicit ScratchFolder(const std::string& purpose);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace strait::base
