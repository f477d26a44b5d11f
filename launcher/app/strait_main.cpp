#include "launcher/app/strait_main.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "launcher/app/verbs.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/plugin/plugin_file.h"

int strait::strait_main(int argc, char** argv, OfferParts offer) {
  CLI::App cli("strait fine-tunes a transformer that is split over machines joined by slow links.");
  cli.set_version_flag("--version", std::string("strait ") + base::build_id());
  cli.require_subcommand(0, 1);  // 0: checked below, so that a misspelt verb is reported first
  app::Command command;
  for (const auto add :
       {app::add_init, app::add_prepare, app::add_plan, app::add_probe, app::add_doctor,
        app::add_install, app::add_run, app::add_run_allocated, app::add_resume, app::add_status,
        app::add_watch, app::add_logs, app::add_stop, app::add_eval, app::add_generate,
        app::add_export, app::add_checkpoint}) {
    add(cli, command);
  }
  try {
    cli.parse(argc, argv);
    plugin::offer_own_parts(offer);
    if (!command) throw CLI::RequiredError("a verb");
    return number(command());
  } catch (const CLI::ParseError& error) {
    const int code = cli.exit(error);  // help and version are "errors" too, with code 0
    return code == 0 ? 0 : number(base::ExitCode::bad_input);
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", base::printable_lines(failure.text).c_str());
    return number(failure.code);
  }
}
