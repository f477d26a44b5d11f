#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "launcher/base/nvidia_driver.h"
#include "launcher/base/own_program.h"
#include "launcher/compute/strait_main.h"
#include "launcher/hosts/stage_command.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/worker/commands.h"
#include "launcher/worker/compute_device.h"

// strait-stage with libtorch: the commands of a host agent and of a stage.
int strait::strait_stage_main(int argc, char** argv, OfferParts offer) {
  using strait::base::ExitCode;
  using strait::hosts::TorchCommand;
  // NCCL would connect in the first sum, which has no time limit that allows for that.
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  // GPUs are numbered as the driver numbers them, whose answers the plan uses. Before any thread.
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  return strait::hosts::run_stage_command(argc, argv, [offer](hosts::TorchCommand command) {
    base::load_libtorch_cuda();
    switch (command) {
      case hosts::TorchCommand::stage:
        break;
      case hosts::TorchCommand::measure:
        return strait::worker::serve_measurement(STDIN_FILENO, STDOUT_FILENO);
      case hosts::TorchCommand::check:
        std::cout << "strait-stage " << strait::base::build_id() << '\n';
        for (const auto& [works, text] : strait::worker::check_devices()) {
          std::cout << (works ? "ok " : "wrong ") << text << '\n';
        }
        return base::ExitCode::done;
    }
    strait::plugin::offer_own_parts(offer);
    return strait::worker::run_stage_process(STDIN_FILENO);
  });
}
