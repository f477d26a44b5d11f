#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::app {

// For people who launch in their own way.
enum class EmitKind : std::uint8_t {
  sbatch,     // a script for sbatch that runs the recipe in its job
  commands,   // what to type where, for hosts that join
  kubernetes  // a manifest: an indexed Job whose pods join, with a headless service
};

// How the user called for the plan, which what is emitted has to repeat.
struct EmitSource {
  std::filesystem::path program;  // strait
  std::string recipe;
  std::vector<std::string> overrides;  // --set
};

// A text to be saved, read and changed. Pure. UserError: the recipe does not say what it takes.
std::string emit_launch(const plan::Plan& plan, EmitKind kind, const EmitSource& source);

}  // namespace strait::app
