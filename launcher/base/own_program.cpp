#include "launcher/base/own_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"

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

fs::path file_of(const PythonScript& script) {
  fs::path file = own_program().parent_path() / script.file;
  if (fs::exists(file)) return file;
  throw UserError(ExitCode::bad_input, "there is no {}, which {}; install strait as a whole",
                  file.string(), script.purpose);
}

std::string python_for(const PythonScript& script) {
  if (const char* chosen = std::getenv("STRAIT_PYTHON"); chosen != nullptr && *chosen != '\0') {
    const fs::path program = chosen;
    if (program.has_parent_path() && !fs::exists(program)) {
      throw UserError(ExitCode::bad_input,
                      "STRAIT_PYTHON is {}, and there is no such program; set it to a "
                      "Python with {}, or unset it",
                      chosen, script.packages);
    }
    return chosen;
  }
  fs::path folder = own_program().parent_path();
  for (int i = 0; i < 4; ++i, folder = folder.parent_path()) {
    const fs::path found = folder / ".venv" / "bin" / "python";
    std::error_code error;
    const bool there = fs::exists(found, error);
    const bool may_run = there && ::access(found.c_str(), X_OK) == 0;
    if (may_run) return found.string();
    if (!there && error != std::errc::permission_denied) continue;
    throw UserError(ExitCode::bad_input,
                    "this user may not run {}, the Python that strait was set up with; "
                    "set STRAIT_PYTHON to another one with {}",
                    found.string(), script.packages);
  }
  return "python3";
}

std::vector<std::string> start_of(const PythonScript& script) {
  return {python_for(script), "-E", "-B", file_of(script).string()};
}

void replace_process(std::vector<std::string> words, const PythonScript& script) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw UserError(ExitCode::bad_input, "cannot run {}: {}; set STRAIT_PYTHON to a Python with {}",
                  words[0], std::strerror(errno), script.packages);
}

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
