#pragma once

#include "launcher/cli/run_options.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/outcome.h"

namespace strait::compute {

// What the user can do with a run that has ended: results and commands, a line each. Reads which
// checkpoints the run has. `asked`: what a resume was asked for (as_words()), which a repeated one
// needs again where the run has not trained: then no change has been applied. `losses` of the run.
std::vector<std::string> closing_lines(const std::filesystem::path& run, const plan::Plan& plan,
                                       const run::Outcome& outcome, const std::string& asked,
                                       const run::LossHistory& losses);

// Of a resume of a run that has nothing left to do: all steps are done, or `early` says why it
// ended before them. `was_to_change`: something was asked for that a longer run would have.
std::string complete_line(const std::filesystem::path& run, const plan::Plan& plan,
                          const std::string& early, bool was_to_change);

// " --from 12 --set 'hosts.list=["b"]'": what a resume was asked for, as words of a shell's
// command.
std::string as_words(const cli::RunOptions& options);

}  // namespace strait::compute
