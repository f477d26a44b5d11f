#include <unistd.h>

#include <iostream>

#include "launcher/agent/stage_command.h"
#include "launcher/app/strait_main.h"
#include "launcher/base/build_id.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/worker/compute_measure.h"
#include "launcher/worker/stage_process.h"

// Both halves in one.
int strait::strait_stage_main(int argc, char** argv, OfferParts offer) {
  using strait::agent::TorchCommand;
  using strait::base::ExitCode;
  return strait::agent::run_stage_command(argc, argv, [offer](agent::TorchCommand errand) {
    switch (errand) {
      case agent::TorchCommand::stage:
        break;
      case agent::TorchCommand::measure:
        return strait::worker::answer_measure(STDIN_FILENO, STDOUT_FILENO);
      case agent::TorchCommand::check:
        std::cout << "strait-stage " << strait::base::build_id() << '\n';
        return base::ExitCode::done;
    }
    strait::plugin::offer_own_parts(offer);
    return strait::worker::run_stage_process(STDIN_FILENO);
  });
}
