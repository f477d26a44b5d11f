#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::app {

// What `strait plan --emit` prints, for launching with other tools.
enum class EmitKind : std::uint8_t {
  sbatch,     // a script for sbatch that runs the recipe in its job
  commands,   // what to type where, for hosts that join
  kubernetes  // a manifest: an indexed Job whose pods join, with a headless service
};

// How the user called `strait plan`: the emitted text repeats it.
struct EmitSource {
  std::filesystem::path program;  // strait
  std::string recipe;
  std::vector<std::string> overrides;  // --set
};

// Pure. UserError: the recipe lacks a setting that this kind needs.
std::string emit_launch(const plan::Plan& plan, EmitKind kind, const EmitSource& source);

// The pods of a run: an indexed Job, one pod for each host, and the headless service that names
// them. Each pod joins with the token of its index out of a secret. `run_command` starts the
// launcher. Pure.
std::string kubernetes_job(const plan::Plan& plan, const std::string& run_command);

// A run's name in Kubernetes's syntax: lower-case letters, digits and "-", short enough for what is
// appended to it.
std::string kubernetes_name(const std::string& run);

}  // namespace strait::app
