#include "launcher/hosts/stage_command.h"

// What needs libtorch runs in the program beside this one.
int main(int argc, char** argv) {
  return strait::hosts::run_stage_command(argc, argv, [argv](strait::hosts::TorchCommand) {
    return strait::hosts::exec_torch_program(argv);
  });
}
