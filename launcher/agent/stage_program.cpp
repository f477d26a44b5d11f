#include "launcher/agent/stage_command.h"

// What needs libtorch runs in the program beside this one.
int main(int argc, char** argv) {
  return strait::agent::run_stage_command(argc, argv, [argv](strait::agent::TorchCommand) {
    return strait::agent::exec_torch_program(argv);
  });
}
