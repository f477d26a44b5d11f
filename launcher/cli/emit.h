#pragma once

#include "launcher/recipe/plan.h"

namespace strait::cli {

// How the user called `strait plan`: the emitted text repeats it.
struct EmitSource {
  std::filesystem::path program;  // strait
  std::string recipe;
  std::vector<std::string> overrides;  // --set
};

// `strait plan --emit commands`: what to type where, for hosts that join by a token. Pure.
// UserError: the recipe lists no hosts.
std::string emit_commands(const plan::Plan& plan, const EmitSource& source);

}  // namespace strait::cli
