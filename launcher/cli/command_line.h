#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What is wrong with the words of a command, in sentences of this program instead of the library's.
namespace strait::cli {

// UserError: one of the words, or the path of this folder, is not UTF-8. They get into files of
// JSON and TOML, which are.
void check_encoding(std::span<char* const> words);

// The verbs of an app without those that only scripts call, and all spellings of its flags.
std::vector<std::string> verbs_of(const CLI::App& app);
std::vector<std::string> flags_of(const CLI::App& app);

// UserError: the first word is not a verb of the program.
void check_verb(const CLI::App& cli, std::string_view word);

// Why the words of a verb cannot be used: one sentence, with the name that was probably meant and
// the command that shows the verb's usage. `cli` has failed to parse them.
std::string usage_fault(const CLI::App& cli, const CLI::Error& error);

// CLI::Range compares so that "nan" passes.
inline CLI::Validator number_range(double least, double most) {
  const auto fault = [least, most](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
    return fmt::format("{} is no number from {} to {}", text, least, most);
  };
  return {fault, fmt::format("FLOAT in [{} - {}]", least, most)};
}

// CLI::NonNegativeNumber names a most with 309 digits.
inline CLI::Validator up_to(std::int64_t most) { return CLI::Range(std::int64_t{0}, most); }

constexpr std::int64_t kMostSteps = std::int64_t{1} << 40U;

}  // namespace strait::cli
