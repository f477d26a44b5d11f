#pragma once

#include "launcher/hosts/join_ticket.h"
#include "launcher/recipe/run_files.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
class Option;
}  // namespace CLI

namespace strait::cli {

// What the verbs share that read a recipe or a run directory.
struct RunOptions {
  std::filesystem::path recipe;        // or, to resume, the run directory
  std::vector<std::string> overrides;  // --set key=value
  bool json = false;                   // machine-readable events on stdout
  std::string color = "auto";          // see base::wants_colors
  std::vector<std::uint32_t> without;  // replicas that the run starts without
  bool replace = false;                // move an earlier run of that name aside
  std::optional<std::int64_t> from;    // to resume: the step of the checkpoint; absent: the newest
  bool resume_if_exists = false;       // go on with a run of that name that has a checkpoint
  bool rendezvous = false;             // this is one of several nodes that run the same command
  hosts::RankFlags rank;               // which one, where the environment does not say it
};

// The argument that names a run: its directory or, as runs/NAME, its bare name. `run` outlives the
// verb.
CLI::Option* add_run_argument(CLI::App* verb, std::filesystem::path& run);
// Of such an argument: runs/NAME for a bare name, unless a run's directory of that name is here.
std::filesystem::path run_directory(const std::filesystem::path& given);

// --set; `overrides` outlives the verb.
void add_overrides(CLI::App* verb, std::vector<std::string>& overrides);
// --set and --json; `options` outlives the verb.
void add_run_options(CLI::App* verb, RunOptions& options);
// --color; `color` outlives the verb.
void add_color(CLI::App* verb, std::string& color);
// --without; `options` outlives the verb.
CLI::Option* add_without(CLI::App* verb, RunOptions& options);

// The plan in a run's directory, to look at: names of parts that plugins bring are not known, since
// those need libtorch.
plan::RunFile read_run(const std::filesystem::path& run);

// Prints a note to stderr, which does not look like the error that ends the program; nothing if it
// is empty.
void warn(const std::string& text);

}  // namespace strait::cli
