#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {

void add_plan(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* verb = cli.add_subcommand("plan", "show what a recipe would run where; starts nothing");
  CLI::Option* const recipe = verb->add_option("recipe", flags->run.recipe,
                                               "a recipe file; with --fit also 1B, 3B, 7B, 14B or "
                                               "32B, or nothing for all of them");
  add_run_options(verb, flags->run);
  CLI::Option* const fit = verb->add_flag(
      "--fit", flags->fit,
      "show which GPUs on how many hosts the model fits into, and how fast it trains");
  verb->add_option("--megabits", flags->megabits,
                   "with --fit: what the line of a host carries, in Mbit/s; without it what "
                   "the recipe says, else 100, or with --json 100, 300 and 1000")
      ->check(number_range(0.001, 1e6))
      ->needs(fit);
  verb->add_option("--emit", flags->emit,
                   "commands: print those for hosts that join by a token instead")
      ->check(CLI::IsMember({"commands"}))
      ->excludes("--json")
      ->excludes(fit);
  verb->add_option(
          "--what-if", flags->changes,
          "compare with \"link A B 100Mbit/s\", \"without A\" or \"add D like A\"; repeatable")
      ->take_all()
      ->allow_extra_args(false)
      ->excludes("--emit")
      ->excludes(fit);
  verb->callback([flags, recipe, &command] {
    if (!flags->fit && recipe->count() == 0) throw CLI::RequiredError(recipe->get_name());
    command.compute = *flags;
  });
}

void add_probe(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<ProbeFlags>();
  CLI::App* verb = cli.add_subcommand("probe", "measure the hosts of a recipe and their links");
  verb->add_option("recipe", flags->run.recipe, "a recipe file")->required();
  verb->add_option("-o,--out", flags->out, "the table that hosts.links names")
      ->capture_default_str();
  verb->add_option("--seconds", flags->seconds, "of each measurement of bandwidth")
      ->check(number_range(0.1, 20.0))
      ->capture_default_str();
  add_overrides(verb, flags->run.overrides);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_doctor(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<DoctorFlags>();
  CLI::App* verb =
      cli.add_subcommand("doctor", "check everything that a recipe needs; starts nothing");
  verb->add_option("recipe", flags->run.recipe, "a recipe file; absent: check this machine alone");
  add_run_options(verb, flags->run);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_install(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<InstallFlags>();
  CLI::App* verb = cli.add_subcommand("install", "install this build on the hosts of a recipe");
  verb->add_option("--hosts", flags->run.recipe, "the recipe that lists them")->required();
  add_overrides(verb, flags->run.overrides);
  verb->add_option("--other-build", flags->other_build,
                   "the programs of another build of these sources: with CUDA, for hosts with a "
                   "GPU, or for CPUs, for those without (default: build/cuda/bin or build/cpu/bin "
                   "next to this one)");
  verb->callback([flags, &command] { command.compute = *flags; });
}

}  // namespace strait::cli
