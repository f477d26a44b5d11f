#include "launcher/strait_main.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cxxopts.hpp>
#include <iostream>
#include <optional>

#include "launcher/build_id.h"
#include "launcher/host/keeper_front.h"
#include "launcher/join/join_front.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/slurm/slurm_keeper.h"
#include "launcher/stage/stage_process.h"

// One stage process. It is started by strait; everything it must know arrives on stdin, because
// argv and the environment can be read by others on its host.
int strait::strait_stage_main(int argc, char** argv, OfferParts offer) {
  using strait::launcher::ExitCode;
  cxxopts::Options options(
      "strait-stage",
      "One stage of a run, or the keeper of a host. strait starts it; people only join.");
  options.add_options()("version", "print the build and leave")("help", "print this and leave")(
      "keep", "keep this host for a run; called over ssh")(
      "keep-of", "keep this node for a run; called by srun")(
      "join", "keep this host for the run that a token is of; FILE, or - for stdin",
      cxxopts::value<std::string>(), "FILE");
  bool keeps = false;
  bool keeps_node = false;
  std::optional<std::string> token;
  try {
    const cxxopts::ParseResult given = options.parse(argc, argv);
    if (given.count("help") != 0) {
      std::cout << options.help() << '\n';
      return 0;
    }
    if (given.count("version") != 0) {
      std::cout << "strait-stage " << strait::launcher::build_id() << '\n';
      return 0;
    }
    keeps = given.count("keep") != 0;
    keeps_node = given.count("keep-of") != 0;
    if (given.count("join") != 0) token = given["join"].as<std::string>();
  } catch (const cxxopts::exceptions::exception& error) {
    std::cerr << "strait-stage: " << error.what() << "; --help lists the options\n";
    return number(ExitCode::bad_input);
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("strait-stage"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  strait::launcher::offer_own_parts(offer);
  if (keeps) return number(strait::launcher::run_keeper_front(STDIN_FILENO, STDOUT_FILENO));
  if (keeps_node) return number(strait::launcher::run_slurm_keeper(STDIN_FILENO));
  if (token) return number(strait::launcher::join_run(*token));
  return number(strait::launcher::run_stage_process(STDIN_FILENO));
}
