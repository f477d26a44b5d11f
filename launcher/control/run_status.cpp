#include "launcher/control/run_status.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/store/bounded_json.h"
#include "launcher/base/errors.h"
#include "launcher/control/run_directory.h"

namespace strait::control {

std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run) {
  const std::filesystem::path path = RunDirectory::status(run);
  std::ifstream in(path);
  if (!in) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  try {
    return store::parse_bounded_json(text);
  } catch (const store::JsonError& error) {
    throw base::UserError(base::ExitCode::corrupt,
                          fmt::format("{} is damaged: {}", path.string(), error.what()));
  }
}

}  // namespace strait::control
