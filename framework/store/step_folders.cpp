#include "framework/store/step_folders.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "framework/store/store_error.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

// The number, if the whole text is one in the form written here: no sign, no leading zeros.
std::optional<std::int64_t> plain_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  if (value < 0 || std::to_string(value) != text) return std::nullopt;
  return value;
}

std::optional<StepFolder> parse_step_folder(const fs::path& path) {
  const std::string file = path.filename().string();
  std::string_view name = file;
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  const std::size_t aside = name.find(kAsideInfix);
  if (aside != std::string_view::npos && !plain_number(name.substr(aside + kAsideInfix.size()))) {
    return std::nullopt;
  }
  const auto step = plain_number(name.substr(0, aside));
  if (!step) return std::nullopt;
  return StepFolder{path, Step{*step}, aside != std::string_view::npos};
}

}  // namespace

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    entries.push_back(entry->path());
  }
  // A missing folder has no entries; any other error must not look like an empty folder.
  if (error && error != std::errc::no_such_file_or_directory) {
    throw system_error("list", folder, error.value());
  }
  return entries;
}

bool is_present(const fs::path& path) {
  std::error_code error;
  const bool present = fs::exists(path, error);
  if (error) throw system_error("look at", path, error.value());
  return present;
}

std::vector<StepFolder> step_folders(const fs::path& run) {
  std::vector<StepFolder> folders;
  for (const fs::path& path : entries_of(run / kCheckpointsFolder)) {
    if (const auto folder = parse_step_folder(path)) folders.push_back(*folder);
  }
  // Newest first: callers look for the newest checkpoint that can be used.
  std::ranges::sort(folders, std::ranges::greater(), &StepFolder::step);
  return folders;
}

}  // namespace strait::store
