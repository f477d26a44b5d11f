#include "launcher/agent/stage_errand.h"

// Whatever needs libtorch is done by the program beside this one.
int main(int argc, char** argv) {
  return strait::agent::run_stage_errand(argc, argv, [argv](strait::agent::ComputeErrand) {
    return strait::agent::become_torch_half(argv);
  });
}
