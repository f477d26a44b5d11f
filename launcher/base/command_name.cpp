#include "launcher/base/command_name.h"

#include <system_error>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::base {

namespace {

// The hub's rules for names of owners and repositories.
bool is_part_of_name(std::string_view part) {
  constexpr std::size_t kLongest = 96;
  const auto allowed = [](char c) {
    return is_ascii_alphanumeric(c) || c == '-' || c == '_' || c == '.';
  };
  return !part.empty() && part.size() <= kLongest && std::ranges::all_of(part, allowed) &&
         is_ascii_alphanumeric(part.front()) && part.back() != '.' && part.back() != '-';
}

}  // namespace

std::string command_name(const std::filesystem::path& directory,
                         const std::filesystem::path& program) {
  const std::filesystem::path script = directory / "strait";
  // In a checkout the program is build/PRESET/bin/strait.
  const auto checkout = program.parent_path().parent_path().parent_path().parent_path();
  std::error_code absent;
  const bool same = std::filesystem::is_regular_file(script, absent) &&
                    std::filesystem::equivalent(script, checkout / "strait", absent);
  return same ? "./strait" : "strait";
}

std::string command_name() { return command_name(".", own_program()); }

std::string strait_command(std::string_view verb, const std::filesystem::path& path) {
  return fmt::format("{} {} {}", command_name(), verb, shell_word(path.string()));
}

void refuse_no_run(const std::filesystem::path& folder) {
  throw UserError(ExitCode::bad_input,
                  "{} holds no run (it has no plan.json); list the runs here: {} status",
                  folder.string(), command_name());
}

std::optional<std::string> hub_name(std::string_view text) {
  for (const std::string_view start : {"hf://", "https://huggingface.co/", "huggingface.co/"}) {
    if (text.starts_with(start)) text.remove_prefix(start.size());
  }
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return std::nullopt;
  if (!is_part_of_name(text.substr(0, slash))) return std::nullopt;
  return is_part_of_name(text.substr(slash + 1)) ? std::optional(std::string(text)) : std::nullopt;
}

std::string download_advice(const std::string& path, std::string_view options) {
  const std::string more = options.empty() ? "" : fmt::format(" {}", options);
  const std::optional<std::string> name = hub_name(path);
  if (!name) {
    return fmt::format(
        "strait downloads nothing; from the Hugging Face hub it comes with: hf "
        "download OWNER/NAME{} --local-dir {}",
        more, shell_word(path));
  }
  const std::string what = *name == path ? "if this is a name on the Hugging Face hub, download it"
                                         : fmt::format("name {} here, and download that", *name);
  return fmt::format("strait downloads nothing; {} with: hf download {}{} --local-dir {}", what,
                     *name, more, *name);
}

}  // namespace strait::base
