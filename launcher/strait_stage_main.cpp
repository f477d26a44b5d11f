#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cxxopts.hpp>
#include <iostream>

#include "launcher/build_id.h"
#include "launcher/stage/stage_process.h"

// One stage process. It is started by strait; everything it must know arrives on stdin, because
// argv and the environment can be read by others on its host.
int main(int argc, char** argv) {
  using strait::launcher::ExitCode;
  cxxopts::Options options("strait-stage",
                           "One stage of a run. strait starts it; nobody else needs to.");
  options.add_options()("version", "print the build and leave")("help", "print this and leave");
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
  } catch (const cxxopts::exceptions::exception& error) {
    std::cerr << "strait-stage: " << error.what() << "; --help lists the options\n";
    return number(ExitCode::bad_input);
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("strait-stage"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  return number(strait::launcher::run_stage_process(STDIN_FILENO));
}
