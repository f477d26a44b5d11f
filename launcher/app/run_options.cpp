#include "launcher/app/run_options.h"

#include <CLI/CLI.hpp>

namespace strait::app {

void add_run_options(CLI::App* verb, const std::shared_ptr<RunOptions>& options) {
  verb->add_option("--set", options->overrides, "key=value instead of the recipe's; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_flag("--json", options->json, "for programs");
}

CLI::Option* add_without(CLI::App* verb, const std::shared_ptr<RunOptions>& options) {
  return verb
      ->add_option("--without", options->without,
                   "begin without this replica, which `strait resume RUN --replica` adds later "
                   "(sync.on_loss = \"continue\"); repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

}  // namespace strait::app
