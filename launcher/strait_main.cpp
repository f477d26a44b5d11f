#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "launcher/build_id.h"
#include "launcher/failure.h"
#include "launcher/verb_init.h"
#include "launcher/verb_status.h"
#include "launcher/verb_stop.h"

namespace {

using strait::launcher::ExitCode;

// What the command line asked for: set by the verb that was given.
using Order = std::function<ExitCode()>;

void add_status(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    bool json = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("status", "what a run does now, or how it ended");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_flag("--json", words->json, "for programs");
  verb->callback([words, &order] {
    order = [words] { return strait::launcher::show_status(words->run, words->json); };
  });
}

void add_stop(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    bool now = false;
    int patience = 600;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("stop", "end a live run: finish the step, save, leave");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_flag("--now", words->now, "leave at once; what is not saved is lost");
  verb->add_option("--patience", words->patience, "seconds to wait for its end")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([words, &order] {
    order = [words] {
      return strait::launcher::stop_run(words->run, words->now,
                                        std::chrono::seconds(words->patience));
    };
  });
}

void add_init(CLI::App& app, Order& order) {
  struct Words {
    std::string file;
    std::string example = "quickstart";
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("init", "copy an example recipe to begin from");
  verb->add_option("file", words->file, "the new recipe")->required();
  verb->add_option("--from", words->example, "which example")->capture_default_str();
  verb->callback([words, &order] {
    order = [words] { return strait::launcher::copy_example(words->example, words->file); };
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("strait fine-tunes a transformer that is split over machines joined by slow links.");
  app.set_version_flag("--version", std::string("strait ") + strait::launcher::build_id());
  app.require_subcommand(1);
  Order order;
  add_init(app, order);
  add_status(app, order);
  add_stop(app, order);
  try {
    app.parse(argc, argv);
    return number(order());
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // help and version are "errors" too, with code 0
    return code == 0 ? 0 : number(ExitCode::bad_input);
  } catch (const std::exception& error) {
    const strait::launcher::Failure failure = strait::launcher::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", failure.text.c_str());
    return number(failure.code);
  }
}
