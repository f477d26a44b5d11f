#include "launcher/control/scratch_folder.h"

#include <cstdlib>
#include <system_error>

#include "launcher/base/errors.h"

namespace strait::control {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const std::string& purpose) {
  std::string name = (fs::temp_directory_path() / ("strait-" + purpose + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw base::UserError(base::ExitCode::storage_io, "cannot make a folder like " + name);
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // a folder of temporary files goes some day
  fs::remove_all(path_, ignored);
}

}  // namespace strait::control
