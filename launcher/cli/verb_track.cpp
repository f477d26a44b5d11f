
#include "launcher/base/run_file_names.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

// Becomes the script, which reads the run's files.
base::ExitCode track(const std::filesystem::path& run, const std::string& to,
                     const std::string& project, int port) {
  if (!std::filesystem::exists(run / base::kPlanFile)) run::refuse_run_not_started(run);
  const base::PythonScript script = {"strait-track.py", "sends metrics to trackers", to.c_str()};
  std::vector<std::string> words = base::start_of(script);
  words.insert(words.end(),
               {run.string(), "--to", to, "--project", project, "--port", std::to_string(port)});
  if (const auto live = run::RunDirectory::live(run)) {
    words.insert(words.end(), {"--pid", std::to_string(live->pid)});
  }
  base::replace_process(std::move(words), script);
}

}  // namespace

void add_track(CLI::App& cli, Command& command) {
  struct Options {
    std::filesystem::path run;
    std::string to;
    std::string project = "strait";
    int port = 9400;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand(
      "track", "send a run's metrics to TensorBoard, Prometheus or a tracker, live or afterwards");
  add_run_argument(verb, options->run)->required();
  verb->add_option("--to", options->to,
                   "tensorboard, prometheus, or a package of Python: wandb, mlflow or trackio")
      ->required()
      ->check(CLI::IsMember({"tensorboard", "prometheus", "wandb", "mlflow", "trackio"}));
  verb->add_option("--project", options->project, "of W&B and Trackio; the experiment of MLflow")
      ->capture_default_str();
  verb->add_option("--port", options->port, "of 127.0.0.1, where Prometheus asks for the metrics")
      ->check(CLI::Range(1, 65'535))
      ->capture_default_str();
  verb->callback([options, &command] {
    command.run = [options] {
      return track(options->run, options->to, options->project, options->port);
    };
  });
}

}  // namespace strait::cli
