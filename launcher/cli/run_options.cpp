#include "launcher/cli/run_options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "launcher/base/run_file_names.h"

namespace strait::cli {

CLI::Option* add_run_argument(CLI::App* verb, std::filesystem::path& run) {
  return verb->add_option_function<std::string>(
      "run", [&run](const std::string& given) { run = run_directory(given); },
      "its directory, runs/NAME, or NAME alone");
}

std::filesystem::path run_directory(const std::filesystem::path& given) {
  const std::filesystem::path named = std::filesystem::path("runs") / given;
  std::error_code none;
  const bool is_bare = given.has_filename() && !given.has_parent_path();
  const bool is_here = std::filesystem::exists(given / base::kPlanFile, none);
  return is_bare && !is_here && std::filesystem::is_directory(named, none) ? named : given;
}

void add_overrides(CLI::App* verb, std::vector<std::string>& overrides) {
  verb->add_option("--set", overrides,
                   "key=value instead of the recipe's; key= for its default; repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

void add_run_options(CLI::App* verb, RunOptions& options) {
  add_overrides(verb, options.overrides);
  verb->add_flag("--json", options.json, "machine-readable output");
}

void add_color(CLI::App* verb, std::string& color) {
  verb->add_option("--color", color, "auto: on a terminal, unless NO_COLOR is set")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
}

CLI::Option* add_without(CLI::App* verb, RunOptions& options) {
  return verb
      ->add_option("--without", options.without,
                   "start without this replica; `strait resume RUN --replica` adds it later "
                   "(sync.on_loss = \"continue\"); repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

plan::RunFile read_run(const std::filesystem::path& run) {
  return plan::read_run_file(run / base::kPlanFile, [](const std::vector<std::string>&) {});
}

void warn(const std::string& text) {
  if (!text.empty()) std::cerr << "note: " << text << '\n';
}

}  // namespace strait::cli
