#include "launcher/transfer/needed_files.h"

namespace strait::transfer {

std::string delivered_plugin_name(std::size_t number, const std::filesystem::path& file) {
  return std::to_string(number) + "-" + file.filename().string();
}

}  // namespace strait::transfer
