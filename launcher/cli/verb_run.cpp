#include "launcher/cli/changeable_keys.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

void add_rendezvous(CLI::App* verb, RunOptions& options) {
  verb->add_flag("--resume-if-exists", options.resume_if_exists,
                 "go on from the newest checkpoint of a run of that name, if it has one");
  CLI::Option* const rendezvous =
      verb->add_flag("--rendezvous", options.rendezvous,
                     "every node runs this command, as srun, mpirun, torchrun or Kubernetes start "
                     "it; STRAIT_JOIN_SECRET(_FILE) lets them in");
  verb->add_option("--rank", options.rank.rank, "number of this node, where no engine says it")
      ->needs(rendezvous);
  verb->add_option("--nodes", options.rank.nodes, "number of all nodes")->needs(rendezvous);
  verb->add_option("--first", options.rank.first, "name or address of the node with rank 0")
      ->needs(rendezvous);
}

}  // namespace

void add_run(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<RunFlags>();
  RunOptions& options = flags->run;
  CLI::App* verb = cli.add_subcommand("run", "fine-tune a model as a recipe describes");
  verb->add_option("recipe", options.recipe, "a recipe file")->required();
  add_run_options(verb, options);
  add_color(verb, options.color);
  verb->add_flag("--replace", options.replace, "move an earlier run of that name aside");
  add_rendezvous(verb, options);
  add_without(verb, options);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_resume(CLI::App& cli, Command& command) {
  struct Replica {
    std::optional<std::uint32_t> number;
    int timeout = 600;
  };
  const auto flags = std::make_shared<ResumeFlags>();
  RunOptions& options = flags->run;
  const auto replica = std::make_shared<Replica>();
  CLI::App* verb = cli.add_subcommand("resume", "resume a run from its newest checkpoint");
  add_run_argument(verb, options.recipe)->required();
  verb->footer(changeable_keys);
  add_run_options(verb, options);
  add_color(verb, options.color);
  CLI::Option* one =
      verb->add_option("--replica", replica->number,
                       "of a live run: this replica rejoins (sync.on_loss = \"continue\")");
  one->excludes(add_without(verb, options));
  one->excludes(
      verb->add_option("--from", options.from,
                       "from the checkpoint of this step; newer ones are given up once it trains")
          ->check(up_to(kMostSteps)));
  verb->add_option("--timeout", replica->timeout, "with --replica: seconds to wait for it to join")
      ->needs(one)
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([flags, replica, &command] {
    if (!replica->number) {
      command.compute = *flags;
      return;
    }
    command.run = [run = flags->run.recipe, replica] {
      return resume_replica(run, *replica->number, std::chrono::seconds(replica->timeout));
    };
  });
}

}  // namespace strait::cli
