#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace strait::cli {

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
