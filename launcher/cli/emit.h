#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::cli {

// What `strait plan --emit` prints, for launching with other tools.
enum class EmitKind : std::uint8_t {
  sbatch,   // a script for sbatch that runs the recipe in its job
  commands  // what to type where, for hosts that join
};

// How the user called `strait plan`: the emitted text repeats it.
struct EmitSource {
  std::filesystem::path program;  // strait
  std::string recipe;
  std::vector<std::string> overrides;  // --set
};

// Pure. UserError: the recipe lacks a setting that this kind needs.
std::string emit_launch(const plan::Plan& plan, EmitKind kind, const EmitSource& source);

}  // namespace strait::cli
