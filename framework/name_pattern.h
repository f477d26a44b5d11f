#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <regex>
#include <string>
#include <string_view>

// Regular expressions over names of tensors and modules, in adapter files and recipes. They come
// from untrusted sources. The standard library parses and searches by recursion, and its usual
// search takes exponential time for some patterns. This one takes polynomial time and has no back
// references.
namespace strait {

inline constexpr std::size_t kLongestPattern = 1000;
inline constexpr std::size_t kLongestExpansion = 10'000;  // its length times its repetitions
inline constexpr std::size_t kMostLookaheads = 2;

inline std::regex compile_pattern(const std::string& pattern) {
  return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
}

// For names that end with a match.
inline std::regex compile_ending(const std::string& pattern) {
  return compile_pattern("(.*\\.)?(" + pattern + ")");
}

// The product of the repetitions of all {n}, {n,} and {n,m}; at most `limit` + 1.
inline std::size_t repetitions_of(std::string_view pattern, std::size_t limit) {
  std::size_t product = 1;
  for (std::size_t at = pattern.find('{'); at < pattern.size(); at = pattern.find('{', at + 1)) {
    std::size_t largest = 1;
    const char* next = pattern.data() + at;
    const char* const end = pattern.data() + pattern.size();
    while (next != end && (*next == '{' || *next == ',')) {
      std::size_t number = 1;
      const auto [rest, error] = std::from_chars(next + 1, end, number);
      if (error == std::errc::result_out_of_range) return limit + 1;
      largest = std::max(largest, rest == next + 1 && *next == ',' ? largest + 1 : number);
      next = rest;
    }
    if (largest > limit / product) return limit + 1;
    product *= largest;
  }
  return product;
}

// (?=...) and (?!...): each is searched again at every position where an enclosing one is tried.
inline std::size_t lookaheads_in(std::string_view pattern) {
  std::size_t count = 0;
  for (std::size_t at = 0; at + 2 < pattern.size(); ++at) {
    if (pattern[at] != '(' || pattern[at + 1] != '?') continue;
    if (pattern[at + 2] == '=' || pattern[at + 2] == '!') ++count;
  }
  return count;
}

// Whether the pattern compiles in both ways and can be searched within bounds.
inline bool is_name_pattern(const std::string& pattern) {
  if (pattern.empty() || pattern.size() > kLongestPattern) return false;
  const std::size_t most = kLongestExpansion / pattern.size();
  if (repetitions_of(pattern, most) > most || lookaheads_in(pattern) > kMostLookaheads) {
    return false;
  }
  try {
    compile_pattern(pattern);
    compile_ending(pattern);
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

}  // namespace strait
