#pragma once

#include "launcher/cli/verbs.h"
#include "launcher/compute/loaded_run.h"

namespace strait::hosts {
struct CheckResult;
struct LinkRoute;
}  // namespace strait::hosts
namespace strait::run {
struct Event;
}

// The verbs that need libtorch, each in verb_NAME.cpp; their flags are in launcher/cli.
namespace strait::compute {

base::ExitCode perform(const cli::PlanFlags& flags);
base::ExitCode perform(const cli::ProbeFlags& flags);
base::ExitCode perform(const cli::DoctorFlags& flags);
base::ExitCode perform(const cli::InstallFlags& flags);
base::ExitCode perform(const cli::RunFlags& flags);
base::ExitCode perform(const cli::ResumeFlags& flags);
base::ExitCode perform(const cli::EvalFlags& flags);
base::ExitCode perform(const cli::GenerateFlags& flags);
base::ExitCode perform(const cli::ChatFlags& flags);
base::ExitCode perform(const cli::ServeFlags& flags);
base::ExitCode perform(const cli::ExportFlags& flags);
base::ExitCode perform(const cli::CheckpointFlags& flags);

// Functions that tests call.

// How the user called `strait plan`: the emitted text repeats it.
struct EmitSource {
  std::filesystem::path program;  // strait
  std::string recipe;
  std::vector<std::string> overrides;  // --set
};

// `strait plan --emit commands`: what to type where, for hosts that join by a token. Pure.
// UserError: the recipe lists no hosts.
std::string emit_commands(const plan::Plan& plan, const EmitSource& source);

// Results about the routes of the plan's links: blocked hosts, relays, clocks that are off. Pure.
std::vector<hosts::CheckResult> judge_links(const plan::Plan& plan,
                                            const std::vector<hosts::LinkRoute>& routes,
                                            const std::vector<run::Event>& notes);

}  // namespace strait::compute
