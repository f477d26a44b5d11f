#include "launcher/hosts/stage_command.h"

// Commands that need libtorch run in strait-stage-torch.
int main(int argc, char** argv) {
  return strait::hosts::run_stage_command(argc, argv, [argv](strait::hosts::TorchCommand) {
    return strait::hosts::exec_torch_program(argv);
  });
}
