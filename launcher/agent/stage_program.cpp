#include "launcher/agent/stage_command.h"

// Commands that need libtorch run in strait-stage-torch.
int main(int argc, char** argv) {
  return strait::agent::run_stage_command(argc, argv, [argv](strait::agent::TorchCommand) {
    return strait::agent::exec_torch_program(argv);
  });
}
