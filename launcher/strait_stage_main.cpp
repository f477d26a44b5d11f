#include <unistd.h>

#include <iostream>

#include "launcher/build_id.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/reach/compute_measure.h"
#include "launcher/stage/stage_process.h"
#include "launcher/stage_errand.h"
#include "launcher/strait_main.h"

// Both halves in one.
int strait::strait_stage_main(int argc, char** argv, OfferParts offer) {
  using strait::launcher::ComputeErrand;
  using strait::launcher::ExitCode;
  return strait::launcher::run_stage_errand(argc, argv, [offer](ComputeErrand errand) {
    switch (errand) {
      case ComputeErrand::stage:
        break;
      case ComputeErrand::measure:
        return strait::launcher::answer_measure(STDIN_FILENO, STDOUT_FILENO);
      case ComputeErrand::check:
        std::cout << "strait-stage " << strait::launcher::build_id() << '\n';
        return ExitCode::done;
    }
    strait::launcher::offer_own_parts(offer);
    return strait::launcher::run_stage_process(STDIN_FILENO);
  });
}
