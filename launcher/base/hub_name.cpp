#include "launcher/base/hub_name.h"

#include <fmt/format.h>

#include <algorithm>

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
