#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}  // namespace CLI

namespace strait::cli {

// The manual page of the program, or of one verb, in the language of man(7): what --help says, and
// the exit codes. `called`: "strait", "strait run". `date`: "2026-11-29". Pure.
std::string man_page(const CLI::App& app, const std::string& called, const std::string& date);

}  // namespace strait::cli
