#include "launcher/base/own_program.h"

#include <system_error>

namespace strait::base {

namespace fs = std::filesystem;

fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

fs::path shared_folder(const fs::path& program) {
  std::error_code none;  // folders above the program may be anybody's
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    for (const fs::path& folder : {at, at / "share" / "strait"}) {
      if (fs::exists(folder / "recipes" / "quickstart.toml", none)) return folder;
    }
  }
  return {};
}

}  // namespace strait::base
