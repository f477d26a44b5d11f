#include "launcher/stage_errand.h"

// Whatever needs libtorch is done by the program beside this one.
int main(int argc, char** argv) {
  return strait::launcher::run_stage_errand(argc, argv, [argv](strait::launcher::ComputeErrand) {
    return strait::launcher::become_torch_half(argv);
  });
}
