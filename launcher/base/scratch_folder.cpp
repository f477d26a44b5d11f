#include "launcher/base/scratch_folder.h"

#include <cstdlib>
#include <system_error>

#include "launcher/base/errors.h"

namespace strait::base {

ScratchFolder::ScratchFolder(const std::string& purpose) {
  std::string name =
      (std::filesystem::temp_directory_path() / ("strait-" + purpose + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw UserError(ExitCode::storage_io, "cannot create a temporary folder " + name);
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // the system removes temporary files eventually
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace strait::base
