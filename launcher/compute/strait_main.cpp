#include "launcher/compute/strait_main.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/cli/strait_command.h"
#include "launcher/compute/verbs.h"
#include "launcher/plugin/plugin_file.h"

void strait::bound_thread_waits(int argc, char** argv) {
  if (argc < 2) return;
  const std::string_view verb = argv[1];
  if (verb != "eval" && verb != "generate") return;
  // OpenMP's runtime reads the environment when it is loaded. If the start fails, it only spins.
  if (base::set_thread_waits()) ::execv(base::own_program().c_str(), argv);
}

void strait::end_program(int code) {
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

int strait::strait_main(int argc, char** argv, OfferParts offer) {
  bound_thread_waits(argc, argv);
  return cli::run_command_line(argc, argv, [offer] {
    base::load_libtorch_cuda();
    plugin::offer_own_parts(offer);
    return [](const cli::ComputeRequest& request) {
      return std::visit([](const auto& flags) { return compute::perform(flags); }, request);
    };
  });
}
