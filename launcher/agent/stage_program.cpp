#include "launcher/agent/stage_command.h"

// Whatever needs libtorch is done by the program beside this one.
int main(int argc, char** argv) {
  return strait::agent::run_stage_command(argc, argv, [argv](strait::agent::TorchCommand) {
    return strait::agent::exec_torch_program(argv);
  });
}
